"""What the trials of a sweep came to: which are best, how far the seeds are apart, with which settings."""

import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from litlab.util.commands import decimals

if TYPE_CHECKING:
    from litlab.sweep.spec import SweepSpec


def in_state(trials: list[FrozenTrial], state: TrialState) -> list[FrozenTrial]:
    """The trials in one state."""
    return [trial for trial in trials if trial.state == state]


def completed(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that came to values, all of them finite."""
    return [trial for trial in in_state(trials, TrialState.COMPLETE) if all(map(math.isfinite, trial.values))]


def losses(spec: "SweepSpec", trials: list[FrozenTrial]) -> np.ndarray:
    """The values of completed trials, turned so that lower is better, shape (trial, metric)."""
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in spec.directions]
    return np.array([trial.values for trial in trials]).reshape(-1, len(signs)) * signs


def ranked(spec: "SweepSpec", trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The completed trials, best first; of several metrics by the first, and the Pareto front before the others."""
    found = completed(trials)
    values = losses(spec, found)
    front = {trial.number for trial in best(spec, found)} if len(spec.metrics) > 1 else set[int]()
    order = sorted(range(len(found)), key=lambda i: (found[i].number not in front, *values[i], found[i].number))
    return [found[i] for i in order]


def best(spec: "SweepSpec", trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The best completed trial; of several metrics the Pareto front: those that no other beats in all metrics.

    Args:
        spec: The sweep.
        trials: Its trials.

    Returns:
        Of equal trials the first; [] if none was completed. The front is sorted by the first metric.
    """
    found = completed(trials)
    values = losses(spec, found)
    if not found:
        return []
    if len(spec.metrics) == 1:
        return [found[int(values[:, 0].argmin())]]
    front = [i for i, own in enumerate(values) if not ((values <= own).all(axis=1) & (values < own).any(axis=1)).any()]
    return [found[i] for i in sorted(front, key=lambda i: (*values[i], found[i].number))]


def spread(trial: FrozenTrial, metric: int) -> float | None:
    """Standard deviation of a metric over the seeds of a trial; None for fewer than two seeds.

    Args:
        trial: The trial.
        metric: Which of the sweep's metrics, from 0.
    """
    values = [seed[metric] for seed in trial.user_attrs.get("values_by_seed", [])]
    return statistics.stdev(values) if len(values) > 1 else None


def validations(trial: FrozenTrial) -> int:
    """How many validations a trial has reported."""
    return max(trial.intermediate_values, default=-1) + 1  # they are numbered from 0


def last_value(trial: FrozenTrial) -> float | None:
    """The first metric at the last validation; None before the first."""
    return trial.intermediate_values.get(validations(trial) - 1)


def parameters(spec: "SweepSpec", trials: list[FrozenTrial]) -> list[str]:
    """YAML paths of the values that were searched, in the order of the sweep's file."""
    found = dict.fromkeys(name for trial in trials for name in trial.params)
    return [name for name in spec.space if name in found] + [name for name in found if name not in spec.space]


def settings(spec: "SweepSpec", trial: FrozenTrial) -> str:
    """The searched values of a trial in one line."""
    return " ".join(f"{name}={number(trial.params[name])}" for name in parameters(spec, [trial]))


def number(value: Any) -> str:
    """A value of the YAML file as people read it: floats in 4 digits, the rest as written there."""
    if isinstance(value, float):
        return decimals(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def run_folders(spec: "SweepSpec", trial: FrozenTrial) -> list[str]:
    """The run folders of a trial, by seed, relative to the sweep's folder where they lie in it."""
    sweep = spec.folder.resolve()
    folders = [Path(run) for run in trial.user_attrs.get("runs", [])]
    inside = [folder.resolve().is_relative_to(sweep) for folder in folders]
    return [
        str(folder.resolve().relative_to(sweep) if within else folder)
        for folder, within in zip(folders, inside, strict=True)
    ]
