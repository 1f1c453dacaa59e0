"""The results of a sweep's trials: which are best, how far the seeds are apart, with which settings."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from litlab.commands.sweep.spec import SweepSpec
from litlab.util.text import decimals


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


def losses(spec: SweepSpec, trials: list[FrozenTrial]) -> np.ndarray:
    """Return the values of completed trials, turned so that lower is better, shape (trial, metric)."""
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in spec.directions]
    return np.array([trial.values for trial in trials]).reshape(-1, len(signs)) * signs


def ranked(spec: SweepSpec, trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the completed trials: the Pareto front (of one metric the best), then the others, by the first metric."""
    found = completed(trials)
    values = losses(spec, found)
    keys = [(_is_beaten(own, values), *own) for own in values]
    return [found[place] for place in sorted(range(len(found)), key=keys.__getitem__)]


def best(spec: SweepSpec, trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return the best completed trial, if any; of several metrics the Pareto front, sorted by the first.

    On the Pareto front are the trials that no other one beats in all metrics. Of equal trials the first is the best.
    """
    order = ranked(spec, trials)
    values = losses(spec, order)
    front = [trial for trial, own in zip(order, values, strict=True) if not _is_beaten(own, values)]
    return front if len(spec.metrics) > 1 else front[:1]


def spread(trial: FrozenTrial, metric: int) -> float | None:
    """Return the standard deviation of a metric over the seeds of a trial; None for fewer than two seeds.

    Args:
        trial: The trial.
        metric: Which of the sweep's metrics, from 0.
    """
    values = [seed[metric] for seed in trial.user_attrs.get("values_by_seed", [])]
    return statistics.stdev(values) if len(values) > 1 else None


def last_value(trial: FrozenTrial) -> float | None:
    """Return the first metric at the last validation; None before the first."""
    return trial.intermediate_values.get(trial.last_step or 0)


def reason(trial: FrozenTrial) -> str:
    """Return why a trial failed."""
    killed = f"killed with its command or its fork server {trial.user_attrs.get('deaths', 0) + 1} times"
    return trial.user_attrs.get("reason", killed)


def requeued(trials: list[FrozenTrial]) -> str:
    """Return which trials were requeued as which other ones; empty if none was."""
    again = [f"{trial.user_attrs['replaces']} as {trial.number}" for trial in trials if "replaces" in trial.user_attrs]
    return f"requeued, as they were stopped or killed: trial {', '.join(again)}" if again else ""


def settings(spec: SweepSpec, trial: FrozenTrial) -> str:
    """Return the searched values of a trial in one line, in the order of the sweep's file."""
    names = [*(name for name in spec.space if name in trial.params), *(n for n in trial.params if n not in spec.space)]
    return " ".join(f"{name}={_number(trial.params[name])}" for name in names)


def last_run(spec: SweepSpec, trial: FrozenTrial) -> str:
    """Return the run folder of a trial's last fit, relative to the sweep's folder where it lies in it; "" for none."""
    run = next(reversed(trial.user_attrs.get("runs", [])), "")
    path, sweep = Path(run).resolve(), spec.folder.resolve()
    return str(path.relative_to(sweep)) if run and path.is_relative_to(sweep) else run


def _is_beaten(own: np.ndarray, values: np.ndarray) -> bool:
    """Whether any row of values, shape (trial, metric), is better than one's own and nowhere worse."""
    return bool(((values <= own).all(axis=1) & (values < own).any(axis=1)).any())


def _number(value: Any) -> str:
    """Return a value as people read it: floats with 4 digits, the rest as in YAML."""
    if isinstance(value, float):
        return decimals(value)
    return value if isinstance(value, str) else json.dumps(value)
