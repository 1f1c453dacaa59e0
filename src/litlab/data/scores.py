"""Test metrics of baselines, by the names that tasks log."""

from collections.abc import Sequence
from typing import cast

import numpy as np


def classification_scores(predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compute accuracy (``test/acc``) and macro F1 (``test/f1``) of predicted classes, int64 of shape (sample,)."""
    from sklearn.metrics import accuracy_score, f1_score

    macro = cast(float, f1_score(labels, predicted, average="macro"))
    return {"test/acc": float(accuracy_score(labels, predicted)), "test/f1": float(macro)}


def regression_scores(predicted: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Compute squared and absolute error and R2, both float64 of shape (sample, target).

    Returns:
        ``test/mse``, ``test/mae`` and ``test/r2``; where there are several targets with the name of each at its end.
    """
    error = predicted - truth
    with np.errstate(divide="ignore", invalid="ignore"):  # of one sample there is no R2
        r2 = 1 - np.square(error).sum(0) / np.square(truth - truth.mean(0)).sum(0)
    values = {"mse": np.square(error).mean(0), "mae": np.abs(error).mean(0), "r2": r2}
    return {
        f"test/{metric}{f'_{name}' if len(names) > 1 else ''}": float(value)
        for metric, of_targets in values.items()
        for name, value in zip(names, of_targets, strict=True)
    }
