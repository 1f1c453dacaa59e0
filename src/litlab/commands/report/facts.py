"""What the files of a run say."""

from dataclasses import dataclass
from typing import Any

from litlab.runs.folder import RunFolder, read_json, read_or_note, read_record
from litlab.runs.masking import mask
from litlab.runs.results import Curves, flatten, read_curves
from litlab.util.yaml import read_mapping


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

    def read(*reader: Any) -> dict[str, Any]:
        return mask(read_or_note(problems, *reader))

    config = read(read_mapping, run.config)
    baselines = read(read_json, run.path / "baselines.json")
    names = list(baselines)[1:]  # the first row is the model's
    return Facts(
        run=run,
        state=read(run.read_state),
        metrics=read(read_record, run.metrics),
        origin=read(read_record, run.provenance),
        settings=flatten(config) if config else {},
        baselines={name: baselines[name] for name in names},
        curves=read_curves(run.path),
        problems=problems,
    )
