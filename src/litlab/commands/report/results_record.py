"""The results of runs as a result file: what anyone may read, without names of folders, host or user."""

import math
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

from litlab.commands.report.results_files import FOLDER
from litlab.commands.report.schema import check_entries
from litlab.errors import UserError
from litlab.runs import results
from litlab.runs.find import experiment_of, without_member
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.results import spread
from litlab.runs.settings import differences, flatten, read_config
from litlab.util import team

OF_A_SEED = ("seed_everything", "data.seed", "experiment")  # in which runs of the same settings may differ
EXPERIMENTS = FOLDER / "experiments"
VERSIONS = ("python", "torch", "torchvision", "lightning")
PATH = re.compile(r"(?:file://|(?<![\w.:/]))[/~](?:[\w.+-]*/)+")  # absolute, up to the last name; no other URL


def record(runs: list[RunFolder], note: str | None = None) -> dict[str, Any]:
    """Return the results of an experiment and how they were made.

    Args:
        runs: Its runs, one for each seed.
        note: What else to say about how they were made.

    Returns:
        Of each metric mean, standard deviation, least and greatest value, and those of the runs in order. ``result`` is
        the test metric of what was monitored, ``baseline`` the best baseline by it.

    Raises:
        UserError: If a run has no test metrics, or the runs differ by more than their seed.
    """
    metrics = [read_json(run.metrics) for run in runs]
    made = [read_json(run.provenance) for run in runs]
    configs = [flatten(read_config(run.config)) for run in runs]
    for run, found, origin in zip(runs, metrics, made, strict=True):
        if not found.get("test"):
            raise UserError(f"{run.name} has no test metrics; `{team.typed('test', '--run', run.name)}` makes them")
        if not origin.get("command"):
            raise UserError(f"{run.name} can't be added: {run.provenance.name} doesn't say which command made it")
    _check_seeds(runs, configs, made)

    command = _as_typed(made[0]["command"])
    sessions = [session for origin in made for session in (origin, *(origin.get("continued") or []))]
    hardware = [session.get("hardware") or {} for session in sessions]
    data = made[0].get("data") or {}
    values = [results.values(each) for each in metrics]
    baselines = _baselines(runs)
    name = results.test_name(metrics[0]) or ""
    generated = any(map(is_generated, made))
    described = {
        "command": command,
        "seeds": [origin.get("seed") for origin in made],
        "date": max(session.get("started") or "" for session in sessions)[:10],
        "commit": _listed(_commit(session) for session in sessions),
        "versions": {key: value for key, value in (made[0].get("versions") or {}).items() if key in VERSIONS},
        "cpu": _listed(f"{each['cpu']}, {each.get('cores')} cores" for each in hardware if each.get("cpu")),
        "gpu": _listed(each.get("device_name") for each in hardware),
        "precision": _listed(each.get("precision") for each in hardware),
        "note": "; ".join(filter(None, ("on generated data" if generated else None, note))) or None,
        "config": " + ".join(_config_names(command)) or experiment_of(runs[0]).name,
        "data": data.get("description") or data.get("class"),
    }
    return _without_folders(described, configs, made) | {
        "result": {"metric": name, **_spread(each.get(name) for each in values)},
        "baseline": _best(baselines, name, metrics),
        "metrics": {key: _spread(each.get(key) for each in values) for key in _names(values)},
        "baselines": baselines,
        "minutes": _spread(each["seconds"] / 60 if each.get("seconds") else None for each in metrics),
        "epochs": metrics[0].get("epochs"),
        "generated": generated,
    }


def read_baselines(run: RunFolder) -> dict[str, dict[str, float]]:
    """Return the finite test metrics of a run's baselines by their names; the file's first row is the model's.

    Raises:
        UserError: If the file can't be read, or is damaged.
    """
    path = run.path / "baselines.json"
    rows = list(check_entries(path, read_json(path)).items())[1:]
    return {name: {key: value for key, value in (row or {}).items() if _is_finite(value)} for name, row in rows}


def is_generated(made: dict[str, Any]) -> bool | None:
    """Return whether the data of a run was generated; None where its ``provenance.json`` doesn't say so."""
    return (made.get("data") or {}).get("generated")


def beside_seed(configs: list[dict[str, Any]]) -> list[str]:
    """Return the settings in which runs differ, those that only tell their seeds apart left out.

    Args:
        configs: Their flat configs.
    """
    return [key for key in differences(configs) if key not in OF_A_SEED]


def _check_seeds(runs: list[RunFolder], configs: list[dict[str, Any]], made: list[dict[str, Any]]) -> None:
    """Refuse runs whose mean would mean nothing."""
    names = " and ".join(run.name for run in runs)
    seeds = [origin.get("seed") for origin in made]
    if other := beside_seed(configs):
        raise UserError(f"{names} differ by more than the seed: in {other[0]}; add each under a name of its own")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{names} have the seeds {', '.join(map(str, seeds))}; give runs with a seed each")
    if len({(origin.get("data") or {}).get("fingerprint") for origin in made}) > 1:
        raise UserError(f"{names} read different data; add each under a name of its own")


def _spread(values: Iterable[float | None]) -> dict[str, Any]:
    """Return mean, standard deviation and range of a figure, and the values; null where a run has no finite one."""
    rounded = [round(value, 6) if _is_finite(value) else None for value in values]
    known = [value for value in rounded if value is not None]
    if not known:
        return {"mean": None, "deviation": None, "min": None, "max": None, "values": rounded}
    found = spread(known)
    deviation = None if found.deviation is None else round(found.deviation, 6)
    return {
        "mean": round(found.mean, 6), "deviation": deviation, "min": min(known), "max": max(known), "values": rounded
    }  # fmt: skip


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _baselines(runs: list[RunFolder]) -> dict[str, dict[str, Any]]:
    """Return the metrics of each baseline."""
    found = [read_baselines(run) for run in runs]
    by_name = {name: [each.get(name, {}) for each in found] for name in _names(found)}
    return {
        name: {key: _spread(row.get(key) for row in rows) for key in _names(rows)} for name, rows in by_name.items()
    }


def _names(mappings: Iterable[dict[str, Any]]) -> dict[str, None]:
    """Return the keys of all, each once, in order."""
    return dict.fromkeys(key for mapping in mappings for key in mapping)


def _best(baselines: dict[str, dict[str, Any]], name: str, metrics: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the best baseline by a metric, with its name; None if there is none, or no telling which is better."""
    sign = results.direction(name, metrics)
    having = [{"name": key, **values[name]} for key, values in baselines.items() if name in values]
    having = [each for each in having if each["mean"] is not None]
    return max(having, key=lambda each: sign * each["mean"]) if having and sign else None


def _as_typed(command: list[str]) -> str:
    """Return a command as a table shows it: without the package, which may be renamed, seed and folders."""
    start = team.command()
    words = command[len(start) :] if command[: len(start)] == start else command
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if "--seed_everything" not in (before, word) and not word.startswith("--seed_everything=")
    ]
    return shlex.join(without_member(_last_name(word)) for word in kept)


def _last_name(word: str) -> str:
    """Return an argument whose absolute path is shortened to its last name: ``--data.path=images``."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return f"{flag}{equals}{Path(value).name if value.startswith(('/', '~')) else value}"


def _config_names(command: str) -> Iterator[str]:
    words = shlex.split(command)
    for before, word in zip(["", *words], words, strict=False):
        if before in ("--config", "-c") or word.startswith("--config="):
            yield Path(word.removeprefix("--config=")).name


def _commit(session: dict[str, Any]) -> str | None:
    commit = session.get("commit")
    return commit and f"{commit[:7]}{' + changes' if session.get('dirty') else ''}"


def _listed(texts: Iterable[str | None]) -> str | None:
    """Return those that differ as one text."""
    return "; ".join(dict.fromkeys(filter(None, texts))) or None


def _without_folders(value: Any, configs: list[dict[str, Any]], made: list[dict[str, Any]]) -> Any:
    """Shorten all absolute paths in texts to their last name; those of the settings may hold blanks."""
    texts = [*(text for config in configs for text in config.values()), *(each.get("directory") for each in made)]
    named = {text for text in texts if isinstance(text, str) and text.startswith("/") and len(Path(text).parts) > 2}

    def shortened(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shortened(item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        for path in sorted(named, key=len, reverse=True):
            value = value.replace(path, Path(path).name)
        return PATH.sub("", value)

    return shortened(value)
