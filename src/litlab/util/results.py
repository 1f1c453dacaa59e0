"""What the ``metrics.json`` of runs say: their metrics by name, and which of two values is the better one."""

import re
from collections.abc import Iterable
from typing import Any

from litlab.util.metrics import metric_direction


def values(metrics: dict[str, Any]) -> dict[str, float]:
    """Return all metrics of a run by name: the final ones of validation and test, the best one where it was monitored.

    Args:
        metrics: The content of ``metrics.json``.
    """
    best = metrics.get("best") or {}
    found = {**(metrics.get("val") or {}), **(metrics.get("test") or {})}
    if "monitor" in best:
        found[best["monitor"]] = best.get("value")
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}


def of_test(metrics: dict[str, Any]) -> tuple[str, float] | None:
    """Return the test metric that belongs to the one that was monitored, else the first one; None without a test."""
    test = {name: value for name, value in (metrics.get("test") or {}).items() if isinstance(value, (int, float))}
    monitored = _stem((metrics.get("best") or {}).get("monitor", ""))
    return next((pair for pair in test.items() if _stem(pair[0]) == monitored), next(iter(test.items()), None))


def direction(name: str, runs: Iterable[dict[str, Any]] = ()) -> int:
    """Return whether a higher value of a metric is better (1), a lower one (-1), or it is not known (0).

    Args:
        name: The metric: ``val/acc``, ``test/loss``.
        runs: The ``metrics.json`` of the runs to compare. What one of them monitored decides; else the name does.
    """
    for metrics in runs:
        best = metrics.get("best") or {}
        if _stem(best.get("monitor", "")) == _stem(name) and best.get("mode") in ("min", "max"):
            return 1 if best["mode"] == "max" else -1
    return {"max": 1, "min": -1, None: 0}[metric_direction(name)]


def _stem(name: str) -> str:
    """Return the name without its stage: ``acc`` of ``val/acc`` and ``test_acc``."""
    return re.sub(r"^(?:train|val|valid|validation|test)[/_]", "", name)
