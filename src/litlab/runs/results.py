"""What the ``metrics.json`` of runs say: metrics by name, which of two values is better, mean and spread over runs."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from litlab.util.metrics import metric_direction
from litlab.util.text import decimals


def values(metrics: dict[str, Any]) -> dict[str, float]:
    """Return all metrics of a run by name: the final ones of validation and test, the best one where it was monitored.

    Args:
        metrics: The content of ``metrics.json``.
    """
    found = {**(metrics.get("val") or {}), **(metrics.get("test") or {})}
    best = metrics.get("best")
    return {**found, best["monitor"]: best["value"]} if best else found


def of_test(metrics: dict[str, Any]) -> tuple[str, float] | None:
    """Return the test metric that belongs to the one that was monitored, else the first one; None without a test."""
    test = metrics.get("test") or {}
    monitor = (metrics.get("best") or {}).get("monitor", "")
    name = next((name for name in test if _stem(name) == _stem(monitor)), next(iter(test), None))
    return None if name is None else (name, test[name])


def direction(name: str, runs: Iterable[dict[str, Any]] = ()) -> int:
    """Return whether a higher value of a metric is better (1), a lower one (-1), or it is not known (0).

    Args:
        name: The metric: ``val/acc``, ``test/loss``.
        runs: The ``metrics.json`` of the runs to compare. What one of them monitored decides; else the name does.
    """
    monitored = [run["best"] for run in runs if run.get("best")]
    modes = [best["mode"] for best in monitored if _stem(best["monitor"]) == _stem(name)]
    return {"max": 1, "min": -1, None: 0}[modes[0] if modes else metric_direction(name)]


@dataclass(frozen=True)
class Spread:
    """What some values of a metric say about it.

    Args:
        count: How many values there are.
        mean: Their mean.
        deviation: Their standard deviation, with n - 1 in its denominator; None for one value.
    """

    count: int
    mean: float
    deviation: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean, by Student's t; None for one value."""
        if self.deviation is None:
            return None
        from scipy.special import stdtrit  # only where it is needed: `runs` starts without numpy

        half = float(stdtrit(self.count - 1, 0.975)) * self.deviation / math.sqrt(self.count)
        return self.mean - half, self.mean + half


def spread(values: Sequence[float]) -> Spread:
    """Return mean and spread of at least one value."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(len(values), statistics.fmean(values), deviation)


def spreads(runs: Iterable[dict[str, Any]]) -> dict[str, Spread]:
    """Return the spread of each metric over those runs that have it.

    Args:
        runs: The content of their ``metrics.json``. As everywhere, the monitored metric is that of the best checkpoint.
    """
    columns: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, value in values(run).items():
            columns[name].append(value)
    return {name: spread(column) for name, column in columns.items()}


def cells(found: Spread) -> list[str]:
    """Return mean, standard deviation, 95 % interval and count, as tables show them."""
    deviation = "-" if found.deviation is None else f"{found.deviation:.2g}"
    interval = "-" if found.interval is None else " to ".join(map(decimals, found.interval))
    return [decimals(found.mean), deviation, interval, str(found.count)]


def plus_minus(mean: float, deviation: float | None) -> str:
    """Return ``0.887 ± 0.0021``, or the mean alone where there is no deviation."""
    return f"{mean:.4g}" if deviation is None else f"{mean:.4g} ± {deviation:.2g}"


def _stem(name: str) -> str:
    """Return the name without its stage: ``acc`` of ``val/acc`` and ``test/acc``."""
    return name.rpartition("/")[2]
