"""The results of a sweep's trials: which are best, how far the seeds are apart, with which settings."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from litlab.util.commands import decimals

if TYPE_CHECKING:
    from litlab.sweep.spec import SweepSpec


def in_state(trials: list[FrozenTrial], state: TrialState) -> list[FrozenTrial]:
    """Return the trials in one state."""
    return [trial for trial in trials if trial.state == state]


def completed(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that have values."""
    return in_state(trials, TrialState.COMPLETE)


def counted(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that use up the budget: all but those that were requeued as another one."""
    replaced = {trial.user_attrs.get("replaces") for trial in trials}
    return [trial for trial in trials if trial.number not in replaced]


def losses(spec: "SweepSpec", trials: list[FrozenTrial]) -> np.ndarray:
    """Return the values of completed trials, turned so that lower is better, shape (trial, metric)."""
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in spec.directions]
    return np.array([trial.values for trial in trials]).reshape(-1, len(signs)) * signs


def ranked(spec: "SweepSpec", trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the completed trials, best first; of several metrics the Pareto front first, each by the first metric."""
    found = completed(trials)
    values = losses(spec, found)
    several = len(spec.metrics) > 1
    keys = [(several and _is_beaten(own, values), *own, t.number) for own, t in zip(values, found, strict=True)]
    return [trial for _, trial in sorted(zip(keys, found, strict=True), key=lambda pair: pair[0])]


def best(spec: "SweepSpec", trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the best completed trial, if any; of several metrics the Pareto front, sorted by the first.

    On the Pareto front are the trials that no other one beats in all metrics. Of equal trials the first is the best.
    """
    order = ranked(spec, trials)
    if len(spec.metrics) == 1:
        return order[:1]
    values = losses(spec, order)
    return [trial for trial, own in zip(order, values, strict=True) if not _is_beaten(own, values)]


def spread(trial: FrozenTrial, metric: int) -> float | None:
    """Return the standard deviation of a metric over the seeds of a trial; None for fewer than two seeds.

    Args:
        trial: The trial.
        metric: Which of the sweep's metrics, from 0.
    """
    values = [seed[metric] for seed in trial.user_attrs.get("values_by_seed", [])]
    return statistics.stdev(values) if len(values) > 1 else None


def validations(trial: FrozenTrial) -> int:
    """Return how many validations a trial has reported."""
    return max(trial.intermediate_values, default=-1) + 1  # they are numbered from 0


def last_value(trial: FrozenTrial) -> float | None:
    """Return the first metric at the last validation; None before the first."""
    return trial.intermediate_values.get(validations(trial) - 1)


def reason(trial: FrozenTrial) -> str:
    """Return why a trial failed."""
    killed = f"killed with its command or its fork server {trial.user_attrs.get('deaths', 0) + 1} times"
    return trial.user_attrs.get("reason", killed)


def requeued(trials: list[FrozenTrial]) -> str:
    """Return which trials were requeued as which other ones; empty if none was."""
    again = [f"{trial.user_attrs['replaces']} as {trial.number}" for trial in trials if "replaces" in trial.user_attrs]
    return f"requeued, as they were stopped or killed: trial {', '.join(again)}" if again else ""


def settings(spec: "SweepSpec", trial: FrozenTrial) -> str:
    """Return the searched values of a trial in one line, in the order of the sweep's file."""
    names = [*(name for name in spec.space if name in trial.params), *(n for n in trial.params if n not in spec.space)]
    return " ".join(f"{name}={_number(trial.params[name])}" for name in names)


def run_folders(spec: "SweepSpec", trial: FrozenTrial) -> list[str]:
    """Return the run folders of a trial, by seed, relative to the sweep's folder where they lie in it."""
    sweep = spec.folder.resolve()
    folders = [(folder, Path(folder).resolve()) for folder in trial.user_attrs.get("runs", [])]
    return [str(path.relative_to(sweep)) if path.is_relative_to(sweep) else folder for folder, path in folders]


def _is_beaten(own: np.ndarray, values: np.ndarray) -> bool:
    """Whether any row of values, shape (trial, metric), is better than one's own and nowhere worse."""
    return bool(((values <= own).all(axis=1) & (values < own).any(axis=1)).any())


def _number(value: Any) -> str:
    """Write a value of the YAML file as people read it: floats in 4 digits, the rest as written there."""
    if isinstance(value, float):
        return decimals(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
