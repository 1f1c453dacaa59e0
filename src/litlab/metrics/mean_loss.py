"""Mean loss over an epoch, summed on the device."""

import torch
from torch import Tensor
from torchmetrics import Metric

# Of sums: exact over millions of samples. Apple's GPUs don't have it.
WIDEST = torch.float32 if torch.backends.mps.is_available() else torch.float64


class MeanLoss(Metric):
    """Mean loss over an epoch, exact over its samples and all ranks, at the cost of a list append per step.

    Steps call `add` in place of ``update``, which would cost more than a small network's step. Call `flush` before
    ``compute``.

    Args:
        flush_every: Steps kept at most before they are summed.
    """

    full_state_update = False
    sums: Tensor
    sums_before: Tensor

    def __init__(self, flush_every: int = 50) -> None:
        super().__init__()
        self.flush_every = flush_every
        self.steps: list[tuple[Tensor, int]] = []
        # Of losses and of samples: in the epoch, and when `recent` was last called.
        self.add_state("sums", torch.zeros(2, dtype=WIDEST), "sum")
        self.add_state("sums_before", torch.zeros(2, dtype=WIDEST), "sum")

    def add(self, loss: Tensor, samples: int) -> None:
        """Add a step: its mean loss, shape (), over this many samples."""
        loss = loss.detach()
        self.steps.append((loss.clone() if loss.is_cuda else loss, samples))  # a CUDA graph's next run overwrites it
        if len(self.steps) >= self.flush_every:
            self.flush()

    def flush(self) -> None:
        """Sum the steps since the last flush."""
        if self.steps:
            losses, samples = zip(*self.steps, strict=True)
            self.steps.clear()
            self.update(torch.stack(losses), torch.tensor(samples))

    def update(self, losses: Tensor, samples: Tensor) -> None:
        """Add mean losses over numbers of samples, both of shape (step,)."""
        weights = samples.to(losses.device, WIDEST, non_blocking=True)
        self.sums = self.sums.to(losses.device) + torch.stack([losses.to(WIDEST) @ weights, weights.sum()])

    def recent(self) -> Tensor:
        """Return the mean loss since the last call in this epoch, shape ()."""
        self.flush()
        total, samples = self.sums - self.sums_before.to(self.sums.device)
        self.sums_before = self.sums
        return (total / samples).float()

    def reset(self) -> None:
        """Start an epoch."""
        super().reset()
        self.steps.clear()

    def compute(self) -> Tensor:
        """Return the mean loss, shape ()."""
        return (self.sums[0] / self.sums[1]).float()
