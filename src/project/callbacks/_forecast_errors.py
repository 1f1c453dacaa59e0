"""Errors of the forecasts of a test, by horizon step and target and by window."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from litlab.callbacks.evaluation import gather_rows

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURES = ["mse", "mae", "mase", "coverage"]


class ForecastErrors:
    """Errors over all windows of a test: sums for each (step, target), and means for each window.

    Everything is of scaled data. `gather` makes the attributes:

    - ``mse``, ``mae``, ``coverage``: means over the windows, float64 of shape (horizon, channel).
    - ``starts``: the row of the series where each window begins, ascending, int64 of shape (window,).
    - ``measures``: ``mse``, ``mae``, ``mase`` and ``coverage`` of each window, float64 of shape (window, 4).

    Args:
        naive_error: Mean absolute error that MASE divides by (Hyndman and Koehler, 2006,
            https://doi.org/10.1016/j.ijforecast.2006.03.001), shape (channel,).
    """

    def __init__(self, naive_error: Sequence[float]) -> None:
        self.naive_error = torch.as_tensor(naive_error).cpu().double()
        self._sums: Tensor | None = None  # (squared, absolute, covered; horizon, channel)
        self._starts: list[Tensor] = []  # (batch,) for each batch
        self._means: list[Tensor] = []  # (batch, 3, channel) for each batch

    def add(self, start: Tensor, future: Tensor, forecast: Tensor, lower: Tensor, upper: Tensor) -> None:
        """Count a batch, on its device and without waiting for it.

        Args:
            start: Row of the series where each window begins, shape (batch,).
            future: The truth, shape (batch, horizon, channel), as the following.
            forecast: The forecast.
            lower: Lower end of the interval; NaN where there is none.
            upper: Upper end of the interval; NaN where there is none.
        """
        error = forecast - future
        covered = ((lower <= future) & (future <= upper)).to(error).masked_fill((lower + upper).isnan(), torch.nan)
        parts = torch.stack([error.square(), error.abs(), covered], dim=1)  # (batch, 3, horizon, channel)
        sums = parts.sum(dim=0, dtype=torch.float32 if parts.device.type == "mps" else torch.float64)
        self._sums = sums if self._sums is None else self._sums + sums
        self._means.append(parts.mean(dim=2))
        self._starts.append(start)

    def gather(self, trainer: Trainer) -> None:
        """Take in the windows of all ranks. Call it on every rank, once, after one `add` at least."""
        assert self._sums is not None
        starts = gather_rows(trainer, torch.cat(self._starts))
        means = gather_rows(trainer, torch.cat(self._means)).double()
        sums = gather_rows(trainer, self._sums[None]).double().sum(dim=0)
        order = starts.argsort()
        squared, absolute, covered = means[order].unbind(dim=1)
        self.starts = starts[order].numpy()
        self.measures = torch.stack([squared, absolute, absolute / self.naive_error, covered]).mean(dim=2).T.numpy()
        self.mse, self.mae, self.coverage = sums / len(starts)

    def tabulate_steps(self, names: list[str], scale: Tensor) -> "DataFrame":
        """Return a table with a row for each horizon step, from 1, and target.

        Args:
            names: Name of each target.
            scale: Units of the user in one of the scaled data, shape (channel,).
        """
        from pandas import DataFrame

        columns = [self.mse, self.mae, self.mae * scale, self.mae / self.naive_error, self.coverage]
        values = torch.stack(columns, dim=2).flatten(0, 1).tolist()
        keys = [[step, name] for step in range(1, len(self.mse) + 1) for name in names]
        rows = [[*key, *row] for key, row in zip(keys, values, strict=True)]
        return DataFrame(rows, columns=["step", "target", "mse", "mae", "mae_units", "mase", "coverage"])

    def tabulate_periods(self, origins: np.ndarray, periods: list[np.ndarray]) -> "DataFrame":
        """Return a table with a row for each of some periods.

        Args:
            origins: Time of each window's origin, datetime64 of shape (window,).
            periods: Numbers of the windows in each.
        """
        from pandas import DataFrame

        times = [text.replace("T", " ") for text in np.datetime_as_string(origins, unit="s").tolist()]
        rows = [
            [times[period[0]], times[period[-1]], len(period), *self.measures[period].mean(axis=0).tolist()]
            for period in periods
        ]
        return DataFrame(rows, columns=["first_origin", "last_origin", "windows", *MEASURES])
