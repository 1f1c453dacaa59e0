"""Mean loss over an epoch, summed up on the device."""

from collections.abc import Callable

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]  # the sum over all ranks


class MeanLoss:
    """Mean loss over an epoch, exact over its samples, at the price of a list append per step.

    Not a torchmetrics metric, whose update costs more than a small network's step, and no buffers, which averaging of
    the weights and DDP would change.

    Args:
        flush_every: Steps remembered at most.
    """

    def __init__(self, flush_every: int = 50) -> None:
        self.flush_every = flush_every
        self.reset(torch.device("cpu"))

    def reset(self, device: torch.device) -> None:
        """Starts an epoch on this device."""
        self._sums = torch.zeros(2, dtype=widest(device), device=device)  # of the losses, of the samples
        self._steps: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, samples: int) -> None:
        """Remembers a step: the mean loss, shape (), of this many samples."""
        if len(self._steps) >= self.flush_every:
            self.flush()
        loss = loss.detach()
        self._steps.append((loss.clone() if loss.is_cuda else loss, samples))  # a CUDA graph's next run overwrites it

    def flush(self) -> Tensor:
        """Mean loss, shape (), of the samples of the remembered steps; there must be one at least."""
        losses, samples = zip(*self._steps, strict=True)
        self._steps.clear()
        values = torch.stack(losses).to(self._sums.dtype)
        weights = torch.tensor(samples, dtype=values.dtype).to(values.device, non_blocking=True)
        sums = torch.stack([values @ weights, weights.sum()])
        self._sums = self._sums.to(sums.device) + sums
        return sums[0] / sums[1]

    def compute(self, reduce: Reduce) -> Tensor:
        """Mean loss, shape (), since `reset`, over all ranks."""
        if self._steps:
            self.flush()
        total, samples = reduce(self._sums.clone())
        return (total / samples).float()

    def sums(self) -> list[Tensor]:
        """What `add_sums` takes: the sums, (2,), and of each remembered step the loss and the samples, both (step,).

        The steps are not added up for this, so that the next `flush` still tells the mean of the same steps.
        """
        losses = [loss for loss, _ in self._steps]
        samples = torch.tensor([samples for _, samples in self._steps], dtype=torch.int64)
        return [self._sums, torch.stack(losses) if losses else torch.empty(0), samples]

    def add_sums(self, sums: list[Tensor]) -> None:
        """Adds what `sums` returned, in this process or another."""
        totals, losses, samples = sums
        device = self._sums.device
        self._sums = self._sums + totals.to(self._sums)
        self._steps += zip(losses.to(device).unbind(), samples.tolist(), strict=True)


def widest(device: torch.device) -> torch.dtype:
    """float64 keeps sums over millions of samples exact; Apple's GPUs have none."""
    return torch.float32 if device.type == "mps" else torch.float64
