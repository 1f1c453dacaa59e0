"""Errors of forecasts over an epoch."""

import torch
from torch import Tensor

from litlab.metrics.means import WIDEST, Sums


class ForecastMetrics(Sums):
    """Mean errors of forecasts, and coverage and width of their intervals where they have any.

    Args:
        channels: Channels of the series.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(5, channels)
        self.naive_error: Tensor | None = None  # shape (channel,); with it there is mase

    def update(self, predicted: Tensor, future: Tensor) -> None:
        """Add windows.

        Args:
            predicted: Forecast and ends of its interval, which may be NaN, (batch, horizon, channel, 3).
            future: The truth, (batch, horizon, channel).
        """
        forecast, lower, upper = predicted.unbind(dim=-1)
        error = forecast - future
        covered = (lower <= future) & (future <= upper)
        terms = (torch.ones_like(error), error.square(), error.abs(), covered, upper - lower)
        self.sums = self.sums + torch.stack([term.sum(dim=(0, 1), dtype=WIDEST) for term in terms])

    def compute(self) -> dict[str, Tensor]:
        """Return the means, each of shape ()."""
        count, *totals = self.sums
        squared, absolute, coverage, width = ((total / count).float() for total in totals)  # of each channel
        values = {"mse": squared.mean(), "mae": absolute.mean()}
        if not width.isnan().any():
            values |= {"coverage": coverage.mean(), "interval_width": width.mean()}
        if self.naive_error is not None:
            values["mase"] = (absolute / self.naive_error.to(absolute)).mean()
        return values
