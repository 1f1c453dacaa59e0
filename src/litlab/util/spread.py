"""Mean and spread of a metric over runs that differ in nothing but their seed."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from litlab.util import results
from litlab.util.text import decimals


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
    """Return the spread of each metric, over those runs that have a finite value of it.

    Args:
        runs: The content of their ``metrics.json``. As everywhere, the monitored metric is that of the best checkpoint.
    """
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, value in results.values(run).items():
            if math.isfinite(value):
                found.setdefault(name, []).append(value)
    return {name: spread(values) for name, values in found.items()}


def cells(found: Spread) -> list[str]:
    """Return mean, standard deviation, 95 % interval and count, as tables show them."""
    deviation = "-" if found.deviation is None else f"{found.deviation:.2g}"
    interval = "-" if found.interval is None else " to ".join(map(decimals, found.interval))
    return [decimals(found.mean), deviation, interval, str(found.count)]


def plus_minus(mean: float, deviation: float | None) -> str:
    """Return ``0.887 ± 0.0021``, or the mean alone where there is no deviation."""
    return f"{mean:.4g}" if deviation is None else f"{mean:.4g} ± {deviation:.2g}"
