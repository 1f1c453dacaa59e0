"""What the files of a run say of it. None of the run's code is imported."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litlab.errors import UserError
from litlab.runs.curves import Curves, read_curves
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.masking import mask
from litlab.runs.settings import flatten
from litlab.util.yaml import read_mapping

OF_A_SEED = ("seed_everything", "data.seed", "experiment")  # in which runs of the same settings may differ


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
