"""Errors of the forecasts of a test, by horizon step and target and by window."""

import numpy as np
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from litlab.callbacks.reporting import gather_rows

MEASURES = ["mse", "mae", "mase", "coverage"]


class ForecastErrors:
    """Errors over all windows of a test: sums for each (step, target), and one row of means for each window.

    Everything is of scaled data. `gather` makes the attributes:

    - ``mse``, ``mae``, ``coverage``: means over the windows, float64 of shape (horizon, channel).
    - ``starts``: the row of the series where each window begins, ascending, int64 of shape (window,).
    - ``measures``: ``mse``, ``mae``, ``mase`` and ``coverage`` of each window, float64 of shape (window, 4).

    Args:
        naive_error: Mean absolute error that MASE divides by (Hyndman and Koehler, 2006,
            https://doi.org/10.1016/j.ijforecast.2006.03.001), shape (channel,).
    """

    def __init__(self, naive_error: Tensor) -> None:
        self.naive_error = naive_error.cpu().double()
        self._divisor: Tensor | None = None  # the same on the device of the batches
        self._sums: Tensor | None = None  # (squared, absolute, covered; horizon, channel)
        self._starts: list[Tensor] = []  # (batch,) for each batch
        self._measures: list[Tensor] = []  # (batch, 4) for each batch

    def add(self, start: Tensor, future: Tensor, forecast: Tensor, lower: Tensor, upper: Tensor) -> None:
        """Count a batch, on its device.

        Args:
            start: Row of the series where each window begins, shape (batch,).
            future: The truth, shape (batch, horizon, channel).
            forecast: Same shape.
            lower: Lower end of the interval, same shape; NaN where there is none.
            upper: Upper end of the interval, same shape; NaN where there is none.
        """
        error = forecast - future
        covered = ((lower <= future) & (future <= upper)).to(error).masked_fill(lower.isnan(), torch.nan)
        parts = torch.stack([error.square(), error.abs(), covered])  # (3, batch, horizon, channel)
        precise = torch.float32 if parts.device.type == "mps" else torch.float64
        sums = parts.sum(dim=1, dtype=precise)
        self._sums = sums if self._sums is None else self._sums + sums
        squared, absolute, covered = parts.mean(dim=2)  # each (batch, channel)
        if self._divisor is None:  # copied once: it waits for the device
            self._divisor = self.naive_error.float().to(absolute.device)
        scaled = absolute / self._divisor
        self._measures.append(torch.stack([part.mean(1) for part in (squared, absolute, scaled, covered)], dim=1))
        self._starts.append(start)

    def gather(self, trainer: Trainer) -> None:
        """Take in the windows of all ranks. Call it on every rank, once, after one `add` at least."""
        assert self._sums is not None
        starts = gather_rows(trainer, torch.cat(self._starts))
        measures = gather_rows(trainer, torch.cat(self._measures))
        sums = trainer.strategy.reduce(self._sums, reduce_op="sum")
        assert isinstance(sums, Tensor)
        order = starts.argsort()
        self.starts = starts[order].numpy()
        self.measures = measures[order].double().numpy()
        self.mse, self.mae, self.coverage = sums.cpu().double() / len(starts)

    def by_step(self, names: list[str], scale: Tensor) -> tuple[list[str], list[list[object]]]:
        """Return header and rows of a table with a row for each horizon step, from 1, and target.

        Args:
            names: Name of each target.
            scale: Units of the user in one of the scaled data, shape (channel,).
        """
        mase = self.mae / self.naive_error
        values = torch.stack([self.mse, self.mae, self.mae * scale, mase, self.coverage], dim=2).tolist()
        rows = [
            [step, name, *row]
            for step, by_name in enumerate(values, 1)
            for name, row in zip(names, by_name, strict=True)
        ]
        return ["step", "target", "mse", "mae", "mae_units", "mase", "coverage"], rows

    def by_period(self, origins: np.ndarray, periods: int) -> tuple[list[str], list[list[object]]]:
        """Return header and rows of a table with a row for each of some consecutive periods, equal in windows.

        Args:
            origins: Time of each window's origin, datetime64 of shape (window,).
            periods: Number of periods, at most.
        """
        rows: list[list[object]] = []
        for period in np.array_split(np.arange(len(origins)), min(periods, len(origins))):
            ends = [str(origins[end].astype("datetime64[s]")).replace("T", " ") for end in (period[0], period[-1])]
            rows.append([*ends, len(period), *self.measures[period].mean(axis=0).tolist()])
        return ["first_origin", "last_origin", "windows", *MEASURES], rows
