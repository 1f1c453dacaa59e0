"""The metrics of a run by name, and which of two values is the better one."""

import re
from pathlib import Path
from typing import Any

from project.errors import UserError
from project.runs.folder import read_json

HIGHER = {
    "acc",
    "accuracy",
    "f1",
    "auc",
    "auroc",
    "ap",
    "map",
    "precision",
    "recall",
    "r2",
    "score",
    "iou",
    "dice",
    "bleu",
}
LOWER = {
    "loss",
    "error",
    "err",
    "mse",
    "rmse",
    "mae",
    "mase",
    "mape",
    "smape",
    "perplexity",
    "nll",
    "brier",
    "ece",
    "crps",
}


def read(path: Path) -> dict[str, Any]:
    """Reads ``metrics.json``.

    Raises:
        UserError: If it is damaged, or somebody else's file of that name.
    """
    metrics = read_json(path)
    for kind, names in {(dict,): ("val", "test", "best"), (int, float): ("seconds", "peak_memory_gib")}.items():
        for name in names:
            if metrics.get(name) is not None and not isinstance(metrics[name], kind):
                raise UserError(f"{path} is damaged ('{name}' is {metrics[name]!r}): delete it, or restore it.")
    return metrics


def values(metrics: dict[str, Any]) -> dict[str, float]:
    """All metrics of a run by name: the final ones of validation and test, the best one where it was monitored.

    Args:
        metrics: The content of ``metrics.json``.
    """
    found = {**(metrics.get("val") or {}), **(metrics.get("test") or {})}
    best = metrics.get("best") or {}
    if "monitor" in best:
        found[best["monitor"]] = best.get("value")
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}


def of_test(metrics: dict[str, Any]) -> tuple[str, float] | None:
    """The test metric that belongs to the one that was monitored, else the first of the test; None without a test."""
    test = {name: value for name, value in (metrics.get("test") or {}).items() if isinstance(value, (int, float))}
    monitored = _stem((metrics.get("best") or {}).get("monitor", ""))
    return next(
        ((name, value) for name, value in test.items() if _stem(name) == monitored), next(iter(test.items()), None)
    )


def direction(name: str, runs: list[dict[str, Any]]) -> int:
    """Whether more of a metric is better (1), less (-1), or nobody can tell (0).

    Args:
        name: The metric: ``val/acc``, ``test/loss``.
        runs: The ``metrics.json`` of the runs to compare. What one of them monitored says it; else the name does.
    """
    for metrics in runs:
        best = metrics.get("best") or {}
        if _stem(best.get("monitor", "")) == _stem(name) and best.get("mode") in ("min", "max"):
            return 1 if best["mode"] == "max" else -1
    words = set(re.split(r"[^a-z0-9]+", _stem(name).lower()))
    return 1 if words & HIGHER else -1 if words & LOWER else 0


def _stem(name: str) -> str:
    """The name without its stage: ``acc`` of ``val/acc`` and ``test_acc``."""
    return re.sub(r"^(?:train|val|valid|validation|test)[/_]", "", name)
