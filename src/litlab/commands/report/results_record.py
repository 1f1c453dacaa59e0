"""What is read of a run besides its settings: baselines, whether its data was generated, its seed."""

import math
from typing import Any

from litlab.commands.report.schema import check_entries
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.settings import differences

OF_A_SEED = ("seed_everything", "data.seed", "experiment")  # in which runs of the same settings may differ


def read_baselines(run: RunFolder) -> dict[str, dict[str, float]]:
    """Return the finite test metrics of a run's baselines by their names; the file's first row is the model's."""
    path = run.path / "baselines.json"
    rows = list(check_entries(path, read_json(path)).items())[1:]
    return {name: {key: value for key, value in row.items() if math.isfinite(value)} for name, row in rows}


def is_generated(made: dict[str, Any]) -> bool | None:
    """Return whether the data of a run was generated; None where its ``provenance.json`` doesn't say so."""
    return (made.get("data") or {}).get("generated")


def beside_seed(configs: list[dict[str, Any]]) -> list[str]:
    """Return the settings in which runs differ, those that only tell their seeds apart left out."""
    return [key for key in differences(configs) if key not in OF_A_SEED]
