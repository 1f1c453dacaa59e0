"""``python -m PACKAGE compare``: how runs differ, and which was better."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litlab.errors import UserError
from litlab.runs.find import RUN_HELP, find_group, find_run
from litlab.runs.folder import ROOT, DamagedFile, RunFolder, read_json, read_or_note
from litlab.runs.run_table import describe_group
from litlab.runs.seed_group import SeedGroup
from litlab.util import metric_direction as metric
from litlab.util.options import Options, answer
from litlab.util.spread import plus_minus
from litlab.util.text import decimals, terminal

if TYPE_CHECKING:
    from rich.table import Table

DESCRIPTION = """\
Compare runs side by side: the settings that differ, the metrics with the better value in bold, and the
commit, versions, hardware and data where they differ. The runs of `fit --seeds` are one column, with mean
and standard deviation.

  %(prog)s mine/version_3 mine/version_4
  %(prog)s mine other                  the newest run of each experiment
  %(prog)s mine/seeds_0 mine/seeds_1   all seeds of each
"""
MISSING = object()
VARIES = "varies"  # a setting of a group of seeds that is not the same in all its runs
OF_A_SEED = ("seed_everything", "data.seed", "experiment")  # in which runs of the same settings may differ


def main(arguments: list[str]) -> int:
    """Run the command ``compare`` and return its exit code: 0, or 2 after one line on what is wrong."""
    return answer(_compare, arguments)


def _compare(arguments: list[str]) -> int:
    options = Options("compare", DESCRIPTION)
    options.add_argument("run", nargs="+", metavar="RUN", help=f"{RUN_HELP}, or a group of seeds")
    options.add_argument("--root", metavar="DIR", type=Path, default=ROOT, help="where the runs are (%(default)s)")
    chosen = options.parse_args(arguments)
    runs = [find_group(text, chosen.root) or find_run(text, chosen.root) for text in chosen.run]
    if len({run.path.resolve() for run in runs}) < 2:
        what = f"{chosen.run[0]} is one run" if len(runs) == 1 else f"{' and '.join(chosen.run)} are the same run"
        raise UserError(f"compare: {what}; give two or more.")

    problems: list[str] = []
    configs, metrics, origins = zip(*(_facts(run, chosen.root, problems) for run in runs), strict=True)
    names = [run.name for run in runs]
    from litlab.util.tables import Fitted

    console = terminal()
    parts = [
        side_by_side("Settings", names, differences(list(configs))),
        metrics_table(names, list(metrics)),
        side_by_side("Made from", names, differences(list(origins))),
    ]
    same = ("The settings are the same.", "There are no metrics.", "Code, versions, hardware and data are the same.")
    for part, otherwise in zip(parts, same, strict=True):
        console.print(Fitted(part) if part.row_count else otherwise)
        console.print()
    for problem in problems:
        console.print(f"warning: {problem}", style="yellow", markup=False)
    return 0


def _facts(
    subject: RunFolder | SeedGroup, root: Path, problems: list[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return settings, metrics and origin of a run, or of a group of seeds: what its runs share, and means."""
    if isinstance(subject, SeedGroup):
        runs, metrics = list(subject.runs().values()), describe_group(subject, root)
    else:
        runs, metrics = [subject], read_or_note(problems, read_json, subject.metrics)
    configs = [flat_config(read_or_note(problems, read_config, run.config)) for run in runs]
    origins = [flat_provenance(read_or_note(problems, read_json, run.provenance)) for run in runs]
    return _shared(configs), metrics, _shared(origins)


def _shared(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries that are the same in all runs, and `VARIES` for the others."""
    return {**(entries[0] if entries else {}), **dict.fromkeys(differences(entries), VARIES)}


def read_config(path: Path) -> dict[str, Any]:
    """Read the resolved config of a run, with the names that its classes and settings have now.

    Raises:
        UserError: If there is none, or it is not YAML.
    """
    import yaml

    try:  # the parser in C where it was built: ten times as fast
        config = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        json.dumps(config, default=str, ensure_ascii=False).encode()  # finds loops, and what can't be shown
    except OSError as error:
        raise UserError(f"{path}: it can't be read ({error.strerror}); restore it.") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise DamagedFile(path, " ".join(str(error).split())) from error
    if not isinstance(config, dict):
        raise DamagedFile(path, "it holds no settings")
    return config


def flat_config(config: Any, key: str = "") -> dict[str, Any]:
    """Flatten a config to dotted keys, as they are typed on the command line.

    A class has the key of its section, its settings are below: ``model`` is ``CifarCNN``, ``model.width`` 128.
    Callbacks and other lists of classes go by the name of the class, as their order has no meaning.

    Args:
        config: The config, or a part of it.
        key: The key of that part.
    """
    if isinstance(config, dict) and isinstance(config.get("class_path"), str):
        settings = config.get("init_args")
        return {key: _short(config["class_path"]), **(flat_config(settings, key) if settings else {})}
    if isinstance(config, dict) and (config or not key):
        parts = (flat_config(value, f"{key}.{name}" if key else str(name)) for name, value in config.items())
        return {name: value for part in parts for name, value in part.items()}
    if isinstance(config, list) and config and all(isinstance(item, dict) and "class_path" in item for item in config):
        flat: dict[str, Any] = {}
        seen: Counter[str] = Counter()
        for item in config:
            name = f"{key}.{_short(item['class_path'])}"
            seen[name] += 1
            flat |= flat_config(item, f"{name}#{seen[name]}" if seen[name] > 1 else name)
        return flat
    return {key: config}


def flat_provenance(made: dict[str, Any]) -> dict[str, Any]:
    """Flatten those entries of the provenance that two runs may share; its time or command is always its own."""
    flat = {name: made[name] for name in ("commit", "dirty", "seed") if name in made}
    if made.get("commit"):
        flat["commit"] = made["commit"][:12]
    if made.get("uncommitted"):
        flat["uncommitted changes"] = made["uncommitted"].get("sha256", "")[:7]
    for section in ("data", "versions", "hardware"):
        flat |= {f"{section}.{name}": value for name, value in (made.get(section) or {}).items()}
    return flat


def differences(runs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of the keys that are not the same in all runs; `MISSING` where a run lacks the key."""
    keys = dict.fromkeys(key for run in runs for key in run)
    rows = {key: [run.get(key, MISSING) for run in runs] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row[1:])}


def beside_seed(configs: list[dict[str, Any]]) -> list[str]:
    """Return the settings in which runs differ, those that only tell their seeds apart left out.

    Args:
        configs: Their configs as `flat_config` returns them.
    """
    return [key for key in differences(configs) if key not in OF_A_SEED]


def side_by_side(title: str, names: list[str], rows: dict[str, list[Any]]) -> "Table":
    """Build a table of differences, one column per run."""
    from rich.text import Text

    table = _table(title, names)
    for key, values in rows.items():
        table.add_row(Text(key), *(Text(as_text(value)) for value in values))
    return table


def metrics_table(names: list[str], runs: list[dict[str, Any]]) -> "Table":
    """Build the table of metrics, the best value of each in bold, and of what the runs cost; of groups, their means."""
    from rich.text import Text

    table = _table("Metrics", names)
    found = [metric.values(run) for run in runs]
    for name in dict.fromkeys(name for values in found for name in values):
        values = [one.get(name) for one in found]
        winner = _better(metric.direction(name, runs), [value for value in values if value is not None])
        styles = ["bold green" if winner is not None and value == winner else "" for value in values]
        cells = [_cell(run, name, value) for run, value in zip(runs, values, strict=True)]
        table.add_row(Text(name), *(Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)))
    epochs = [(run.get("best") or {}).get("epoch") for run in runs]
    costs = {
        "best epoch": [None if epoch is None else epoch + 1 for epoch in epochs],  # as the progress bar counts them
        **{name: [run.get(name) for run in runs] for name in ("epochs", "steps")},
        "minutes": [None if run.get("seconds") is None else run["seconds"] / 60 for run in runs],
        "peak memory, GiB": [run.get("peak_memory_gib") for run in runs],
    }
    for name, values in costs.items():
        if any(value is not None for value in values):
            table.add_row(name, *(f"{v:.2f}" if isinstance(v, float) else "-" if v is None else str(v) for v in values))
    if any(run.get("generated_data") for run in runs):
        marks = ["yes: not real" if run.get("generated_data") else "-" for run in runs]
        table.add_row("generated data", *marks, style="bold red")
    return table


def _cell(run: dict[str, Any], name: str, value: float | None) -> str:
    deviations = (run.get("seeds") or {}).get("deviation", {})
    return decimals(value) if value is None else plus_minus(value, deviations.get(name))


def _better(direction: int, values: list[float]) -> float | None:
    if not direction or len(values) < 2 or min(values) == max(values):
        return None
    return max(values) if direction > 0 else min(values)


def _table(title: str, names: list[str]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    table.add_column("", overflow="fold")
    for name in names:
        table.add_column(Text(name), overflow="fold")
    return table


def as_text(value: Any) -> str:
    """Return the value of a setting as YAML has it; ``-`` where a run lacks the setting."""
    if value is MISSING:
        return "-"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _short(class_path: str) -> str:
    return class_path.rpartition(".")[2]
