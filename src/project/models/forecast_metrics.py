"""Loss and errors of forecasts, summed up on the device."""

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
        self._sums = torch.zeros(2, dtype=_widest(device), device=device)  # of the losses, of the samples
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


class ForecastMetrics:
    """Squared and absolute error, coverage and width, of each horizon step and channel, over all windows and ranks.

    `reset`, `add` for each batch, `reduce` once; then the means can be read until the next `reset`.

    Args:
        shape: Horizon steps and channels.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.reset(torch.device("cpu"))

    def reset(self, device: torch.device) -> None:
        """Forgets everything and goes on on this device."""
        kind = _widest(device)
        self._sums = torch.zeros(4, *self.shape, dtype=kind, device=device)  # squared, absolute, covered, width
        self._windows = torch.zeros(2, dtype=kind, device=device)  # in all, with an interval

    def add(self, forecast: Tensor, future: Tensor, interval: tuple[Tensor, Tensor] | None = None) -> None:
        """Counts a batch, everything of shape (batch, horizon, channel).

        Args:
            forecast: The forecast.
            future: The truth.
            interval: Lower and upper ends, where there are intervals.
        """
        error = forecast - future
        covered = width = torch.zeros_like(error)
        if interval is not None:
            lower, upper = interval
            covered, width = (lower <= future) & (future <= upper), upper - lower
        sums = [part.sum(dim=0, dtype=self._sums.dtype) for part in (error.square(), error.abs(), covered, width)]
        windows = torch.tensor([len(future), 0 if interval is None else len(future)])
        # Not in place: what validation makes under inference mode could not be changed outside of it.
        self._sums = self._sums + torch.stack(sums)
        self._windows = self._windows + windows.to(self._windows, non_blocking=True)

    def reduce(self, reduce: Reduce) -> None:
        """Adds up the ranks; every rank calls it once, after its last batch."""
        self._sums, self._windows = reduce(self._sums), reduce(self._windows)

    def per_step(self) -> dict[str, Tensor]:
        """Means by name (mse, mae and, where there are intervals, coverage and width), each of shape (horizon,)."""
        return {name: mean.mean(dim=1) for name, mean in self.means().items()}

    def per_target(self) -> dict[str, Tensor]:
        """Means by name (mse, mae and, where there are intervals, coverage and width), each of shape (channel,)."""
        return {name: mean.mean(dim=0) for name, mean in self.means().items()}

    def means(self) -> dict[str, Tensor]:
        """Means by name over all windows, each of shape (horizon, channel)."""
        means = {name: self._sums[row] / self._windows[0] for row, name in enumerate(("mse", "mae"))}
        if self._windows[1] > 0:
            means |= {name: self._sums[row] / self._windows[1] for row, name in ((2, "coverage"), (3, "width"))}
        return {name: mean.float() for name, mean in means.items()}


def _widest(device: torch.device) -> torch.dtype:
    """float64 keeps sums over millions of windows exact; Apple's GPUs have none."""
    return torch.float32 if device.type == "mps" else torch.float64
