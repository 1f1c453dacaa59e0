"""Test metrics of baselines, by the names that tasks log."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from litlab.metrics.sums import RegressionErrors


def classification_scores(predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compute accuracy (``test/acc``) and macro F1 (``test/f1``) of predicted classes, int64 of shape (sample,)."""
    from sklearn.metrics import accuracy_score, f1_score

    macro = cast(float, f1_score(labels, predicted, average="macro"))
    return {"test/acc": float(accuracy_score(labels, predicted)), "test/f1": float(macro)}


def regression_scores(predicted: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Compute squared and absolute error and R2 of predictions and truth, both float64 of shape (sample, target).

    Returns:
        ``test/mse``, ``test/mae`` and ``test/r2``; where there are several targets with the name of each at its end.
    """
    errors = RegressionErrors(names)
    errors.update(torch.tensor(predicted), torch.tensor(truth))
    return {f"test/{name}": value.item() for name, value in errors.compute().items()}
