"""Metrics that are quotients of sums over samples."""

import torch
from torch import Tensor
from torchmetrics import Metric

# Of sums: exact over millions of samples, and whenever a run was interrupted. Apple's GPUs don't have it.
WIDEST = torch.float32 if torch.backends.mps.is_available() else torch.float64


class Sums(Metric):
    """A metric that adds up numbers, over samples and ranks.

    Args:
        shape: Shape of ``sums``, in which they are added up.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(shape, dtype=WIDEST), dist_reduce_fx="sum")


class MeanLoss(Sums):
    """Mean loss of an epoch.

    Not torchmetrics' MeanMetric (1.9): it waits for the device to look for NaN, or, told not to, forgets the weights.
    """

    def __init__(self) -> None:
        super().__init__(2)  # of losses, of samples

    def update(self, losses: Tensor, samples: Tensor) -> None:
        """Add mean losses over numbers of samples, both of shape (step,)."""
        weights = samples.to(losses.device, WIDEST, non_blocking=True)
        self.sums = self.sums.to(losses.device) + torch.stack([losses.to(WIDEST) @ weights, weights.sum()])

    def compute(self) -> Tensor:
        """Return the mean loss, shape ()."""
        total, samples = self.sums
        return (total / samples).float()
