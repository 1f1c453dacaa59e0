"""Errors of a regression over an epoch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from litlab.metrics.means import WIDEST, Sums


class RegressionErrors(Sums):
    """Mean squared error, mean absolute error and R2 (the share of the variance that is explained) of each target.

    Not torchmetrics' own (1.9): its R2Score takes sums below 1e-4 for zero, so that small units have an R2 of 1, and
    float32 sums of errors depend on where a run was interrupted.

    Args:
        targets: Their names. Several are told apart by them: ``mse_price``; a single one is just ``mse``.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__(5, len(targets))
        self.endings = [f"_{name}" for name in targets] if len(targets) > 1 else [""]

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows, both float of shape (row, target)."""
        target = target.to(WIDEST)
        error = predicted.to(WIDEST) - target
        terms = [torch.ones_like(target), error.square(), error.abs(), target, target.square()]
        self.sums = self.sums + torch.stack(terms).sum(dim=1)

    def compute(self) -> dict[str, Tensor]:
        """Return the errors of each target, each of shape (); R2 is NaN where the target never changes."""
        count, squared, absolute, total, total_squared = self.sums
        variation = total_squared - total.square() / count
        r2 = (1 - squared / variation).where(variation > 1e-12 * total_squared, torch.nan)
        values = {}
        for name, errors in (("mse", squared / count), ("mae", absolute / count), ("r2", r2)):
            for ending, value in zip(self.endings, errors.float(), strict=True):
                values[name + ending] = value
        return values
