"""``best.yaml``: the best settings of a sweep, as an overlay for ``fit``."""

from pathlib import Path

import yaml
from optuna.trial import FrozenTrial

from litlab.commands.sweep.results import best, spread
from litlab.commands.sweep.space import overlay
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.trial import flags
from litlab.runs.folder import write_text
from litlab.runs.masking import mask_command
from litlab.util.team import typed
from litlab.util.text import decimals


def write_best(spec: SweepSpec, trials: list[FrozenTrial]) -> list[Path]:
    """Write the best trial's values as ``best.yaml``; of several metrics the Pareto front: ``best_1.yaml`` and so on.

    Args:
        spec: The sweep, with completed blocks.
        trials: Its trials.

    Returns:
        The files; none if no trial was completed.
    """
    found = best(spec, trials)
    files = []
    for number, trial in enumerate(found, start=1):
        file = spec.folder / ("best.yaml" if len(spec.metrics) == 1 else f"best_{number}.yaml")
        values = yaml.safe_dump(overlay(spec.space, trial.params), sort_keys=False)
        write_text(file, f"{_heading(spec, trial, file)}{values}")
        files.append(file)
    return files


def command(spec: SweepSpec, file: Path) -> str:
    """Return the command that takes the overlay."""
    configs = " ".join(f"--config {path}" for path in [*spec.base, file])
    return f"{typed('fit')} {configs}"


def _heading(spec: SweepSpec, trial: FrozenTrial, file: Path) -> str:
    values = []
    for number, (metric, value) in enumerate(zip(spec.metrics, trial.values, strict=True)):
        deviation = spread(trial, number)
        over = "" if deviation is None else f" (standard deviation over {spec.seeds} seeds {decimals(deviation)})"
        values.append(f"{metric} {decimals(value)}{over}")
    lines = [f"Trial {trial.number} of the sweep {spec.name}: {', '.join(values)}.", f"  {command(spec, file)}"]
    if others := [*flags(spec.settings), *spec.arguments]:
        lines.append(f"Found with {' '.join(mask_command(others))}")
    return "".join(f"# {line}\n" for line in lines)
