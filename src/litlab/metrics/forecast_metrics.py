"""Errors of forecasts over an epoch."""

import torch
from torch import Tensor
from torchmetrics import Metric

from litlab.metrics.mean_loss import WIDEST


class ForecastMetrics(Metric):
    """Mean errors of forecasts, and coverage and width of their intervals where they have any.

    Args:
        channels: Channels of the series.
    """

    full_state_update = False
    names = ("mse", "mae", "coverage", "interval_width")
    sums: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.naive_error: Tensor | None = None  # shape (channel,); with it there is mase
        self.add_state("sums", torch.zeros(5, channels, dtype=WIDEST), dist_reduce_fx="sum")

    def update(self, predicted: Tensor, future: Tensor) -> None:
        """Add windows.

        Args:
            predicted: Forecast and ends of its interval, which may be NaN, (batch, horizon, channel, 3).
            future: The truth, (batch, horizon, channel).
        """
        forecast, lower, upper = predicted.unbind(dim=-1)
        error = forecast - future
        covered = (lower <= future) & (future <= upper)
        terms = (error.square(), error.abs(), covered, upper - lower, torch.ones_like(error))
        self.sums = self.sums + torch.stack([term.sum(dim=(0, 1), dtype=WIDEST) for term in terms])

    def compute(self) -> dict[str, Tensor]:
        """Return the means, each of shape ()."""
        means = (self.sums[:4] / self.sums[4]).float()  # of each channel
        values: dict[str, Tensor] = dict(zip(self.names, means.mean(dim=1), strict=True))
        if values["interval_width"].isnan():
            values = {name: values[name] for name in ("mse", "mae")}
        if self.naive_error is not None:
            values["mase"] = (means[1] / self.naive_error.to(means)).mean()
        return values
