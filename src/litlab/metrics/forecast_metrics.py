"""Errors of forecasts, summed on the device."""

import torch
from torch import Tensor

from litlab.metrics.mean_loss import Reduce, widest


class ForecastMetrics:
    """Mean errors of forecasts, and coverage and width of their intervals, for each horizon step and channel.

    Over all windows and ranks: call `reset`, `add` for each batch, then `reduce` once. The means can be read until the
    next `reset`. They are ``mse`` and ``mae`` and, where there are intervals, ``coverage`` and ``interval_width``.

    Args:
        shape: Horizon steps and channels.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.reset(torch.device("cpu"))

    def reset(self, device: torch.device) -> None:
        """Start from zero, on this device."""
        kind = widest(device)
        self._sums = torch.zeros(4, *self.shape, dtype=kind, device=device)  # squared, absolute, covered, width
        self._windows = torch.zeros(2, dtype=kind, device=device)  # in all, with an interval

    def add(self, forecast: Tensor, future: Tensor, interval: tuple[Tensor, Tensor] | None = None) -> None:
        """Add a batch, everything of shape (batch, horizon, channel).

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
        """Sum over the ranks; every rank calls it once, after its last batch."""
        self._sums, self._windows = reduce(self._sums), reduce(self._windows)

    def per_step(self) -> dict[str, Tensor]:
        """Return the means by name, each of shape (horizon,)."""
        return {name: mean.mean(dim=1) for name, mean in self.means().items()}

    def per_target(self) -> dict[str, Tensor]:
        """Return the means by name, each of shape (channel,)."""
        return {name: mean.mean(dim=0) for name, mean in self.means().items()}

    def means(self) -> dict[str, Tensor]:
        """Return the means by name, each of shape (horizon, channel)."""
        counts = {"mse": 0, "mae": 0} | ({"coverage": 1, "interval_width": 1} if self._windows[1] > 0 else {})
        return {
            name: (self._sums[row] / self._windows[count]).float() for row, (name, count) in enumerate(counts.items())
        }
