"""Mean loss over an epoch, summed on the device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]  # the sum over all ranks

# Of sums: exact over millions of samples. Apple's GPUs don't have it.
WIDEST = torch.float32 if torch.backends.mps.is_available() else torch.float64


class MeanLoss:
    """Mean loss over an epoch, exact over its samples, at the cost of a list append per step.

    Not a torchmetrics metric: its update costs more than a small network's step. Not a buffer: averaging of the weights
    and DDP would change it.

    Args:
        flush_every: Steps kept at most before they are summed.
    """

    def __init__(self, flush_every: int = 50) -> None:
        self.flush_every = flush_every
        self.reset(torch.device("cpu"))

    def reset(self, device: torch.device) -> None:
        """Start an epoch, on this device."""
        self._sums = torch.zeros(2, dtype=WIDEST, device=device)  # of the losses, of the samples
        self._steps: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, samples: int) -> None:
        """Add a step: its mean loss, shape (), over this many samples."""
        if len(self._steps) >= self.flush_every:
            self.flush()
        loss = loss.detach()
        self._steps.append((loss.clone() if loss.is_cuda else loss, samples))  # a CUDA graph's next run overwrites it

    def flush(self) -> Tensor:
        """Sum the steps since the last flush, at least one, and return their mean loss, shape ()."""
        losses, samples = zip(*self._steps, strict=True)
        self._steps.clear()
        values = torch.stack(losses).to(WIDEST)
        weights = torch.tensor(samples, dtype=WIDEST).to(values.device, non_blocking=True)
        sums = torch.stack([values @ weights, weights.sum()])
        self._sums = self._sums.to(sums.device) + sums
        return sums[0] / sums[1]

    def compute(self, reduce: Reduce) -> Tensor:
        """Return the mean loss since `reset` over all ranks, shape ()."""
        if self._steps:
            self.flush()
        total, samples = reduce(self._sums.clone())
        return (total / samples).float()

    def state(self) -> dict[str, Any]:
        """Return the sums and the steps since the last flush, of which the next one returns the mean."""
        return {"sums": self._sums.cpu(), "steps": [(loss.cpu(), samples) for loss, samples in self._steps]}

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from what `state` returned, on this device."""
        self._sums = state["sums"].to(device)
        self._steps = [(loss.to(device), samples) for loss, samples in state["steps"]]
