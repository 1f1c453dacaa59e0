"""What the files of a run say of it. None of the run's code is imported."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from litlab.cli.argv import flags_of, is_of_run
from litlab.errors import UserError
from litlab.runs.curves import Curves, read_curves
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.masking import mask, mask_text
from litlab.runs.settings import flatten
from litlab.util.yaml import read_mapping, read_text

OF_A_SEED = ("seed_everything", "data.seed", "experiment")  # in which runs of the same settings may differ
LEARNING = ("--data", "--model", "--trainer.max_", "--trainer.limit_")


@dataclass(frozen=True)
class Facts:
    """A run as its files describe it, secrets masked; {} where a file is missing or damaged."""

    run: RunFolder
    state: dict[str, Any]  # of status.json
    metrics: dict[str, Any]  # of metrics.json
    origin: dict[str, Any]  # of provenance.json
    settings: dict[str, Any]  # of config.yaml, by dotted key
    baselines: dict[str, dict[str, float]]  # test metrics of each baseline, by its name
    curves: Curves  # what was logged for TensorBoard
    problems: list[str]  # files that can't be read, a line each

    @property
    def status(self) -> str:
        return self.state.get("status", "unknown")

    @property
    def data(self) -> dict[str, Any]:
        return self.origin.get("data") or {}

    @property
    def generated(self) -> bool:
        return self.data.get("generated", (self.run.path / "GENERATED_DATA.txt").is_file())


def read_facts(run: RunFolder) -> Facts:
    """Read the files of a run; those that are damaged are listed as problems."""
    problems: list[str] = []

    def read(reader: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        try:
            return mask(reader(*arguments))
        except UserError as error:
            problems.append(str(error))
            return {}

    config = read(read_mapping, run.config)
    baselines = read(read_json, run.path / "baselines.json")
    names = list(baselines)[1:]  # the first row is the model's
    return Facts(
        run=run,
        state=read(run.state),
        metrics=read(read_json, run.metrics),
        origin=read(read_json, run.provenance),
        settings=flatten(config) if config else {},
        baselines={name: baselines[name] for name in names},
        curves=read_curves(run.path),
        problems=problems,
    )


@dataclass(frozen=True)
class Shipped:
    """The config of the repository that a run was started with."""

    name: str  # its path, as it was typed
    comment: str  # the comment that it begins with; "" where the run has other data or settings than it speaks of
    changes: list[tuple[str, Any, Any]]  # key, its value in the config, None where it has none, and in the run


def find_shipped(facts: Facts) -> Shipped | None:
    """Find the first ``--config`` of the command of a run; None if it is no longer there, or that of another run."""
    flags = flags_of(facts.origin.get("command") or [])
    configs = [value for flag, value in flags if flag in ("--config", "-c")]
    if not configs or not Path(configs[0]).is_file() or is_of_run(Path(configs[0])):
        return None
    shipped = mask(flatten(read_mapping(Path(configs[0]))))
    text = mask_text(read_text(Path(configs[0])))

    settings = facts.settings
    keys = [key for key in shipped if key not in ("base", *OF_A_SEED)]
    changes = [(key, shipped[key], settings.get(key)) for key in keys if settings.get(key) != shipped[key]]
    is_shipped = not changes and len(configs) == 1 and not any(flag.startswith(LEARNING) for flag, _ in flags)

    # Flags can also set what the config does not write
    keys = [key for key in settings if key not in (*shipped, *OF_A_SEED) and is_set(key, flags)]
    changes += [(key, None, settings[key]) for key in keys if settings[key] is not None]
    return Shipped(configs[0], read_comment(text) if is_shipped else "", changes)


def is_set(key: str, flags: list[tuple[str, str]]) -> bool:
    """Return whether one of the flags sets a key, alone or in a block with others."""
    for flag, value in flags:
        name = flag.removeprefix("--").replace(".init_args", "")
        if key == name or (value.startswith(("[", "{")) and key.startswith(f"{name}.")):
            return True
    return False


def read_comment(text: str) -> str:
    comment = takewhile(lambda line: line.startswith("#"), text.splitlines())
    lines = [line.removeprefix("#").removeprefix(" ") for line in comment if "yaml-language-server" not in line]
    return "\n".join(lines)
