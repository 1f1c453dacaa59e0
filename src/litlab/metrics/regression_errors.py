"""Errors of a regression over an epoch."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from litlab.metrics.mean_loss import widest


class RegressionErrors(Metric):
    """Mean squared error, mean absolute error and R2 (the share of the variance that is explained) of each target.

    R2 is the difference of large sums, and a resumed run must reach the very same ones, so float32 is too short for
    them. float64 is not on every device: each sum is kept as a float32 number and what that leaves of it.

    Args:
        targets: Their names. Several are told apart by them: ``mse_price``; a single one is just ``mse``.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__()
        self.ends = [f"_{name}" for name in targets] if len(targets) > 1 else [""]
        self.add_state("sums", torch.zeros(2, 5, len(self.ends)), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows, both float of shape (row, target)."""
        kind = widest(target.device)
        error, target = predicted.to(kind) - target.to(kind), target.to(kind)
        terms = torch.stack([torch.ones_like(target), error.square(), error.abs(), target, target.square()])
        total = self.sums.to(kind).sum(0) + terms.sum(1)
        high = total.float()
        self.sums = torch.stack([high, (total - high).float()])

    def compute(self) -> dict[str, Tensor]:
        """Return the errors of each target, each of shape (); R2 is NaN where the target never changes."""
        count, squared, absolute, total, total_squared = self.sums.to(widest(self.sums.device)).sum(0)
        variation = total_squared - total.square() / count
        same = variation <= 1e-12 * total_squared
        r2 = (1 - squared / variation).masked_fill(same, torch.nan)
        values = {"mse": squared / count, "mae": absolute / count, "r2": r2}
        return {f"{name}{end}": v for name, of in values.items() for end, v in zip(self.ends, of.float(), strict=True)}
