"""All windows of some series, cut out by indexing, and which of them are for training, validation and test."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.series.regular import Series
from litlab.data.split import SPLITS, read_fold
from litlab.errors import UserError

Split = list[float] | list[str]


class Windows(Dataset[dict[str, Tensor]]):
    """Windows of equal length; indexed by a tensor, it returns a batch.

    A batch is gathered from strided views of the series: nothing but its start is stored per window, and no Python runs
    per window.

    Args:
        rows: float32 of shape (time, channel), in memory or on a device; where there are covariates also the calendar,
            float32 of shape (time, feature), on the same device.
        starts: Rows where the past of each window begins, int64 of shape (window,).
        context_length: Rows of the past.
        horizon: Rows of the future.
    """

    def __init__(self, rows: list[Tensor], starts: Tensor, context_length: int, horizon: int) -> None:
        values, *calendar = rows
        self.device = values.device
        self.starts = starts.to(self.device)
        self.views = {"past": _view(values, context_length), "future": _view(values[context_length:], horizon)}
        for features in calendar:
            self.views["calendar"] = _view(features, context_length + horizon)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the windows, int64 of shape (batch,), on the CPU.

        Returns:
            past: float32 (batch, context_length, channel); future: (batch, horizon, channel), where it is known;
            calendar: (batch, context_length + horizon, feature), where there are covariates; start: int64 (batch,),
            row where the past begins.
        """
        start = self.starts.index_select(0, index.to(self.device, non_blocking=True))
        return {name: view.index_select(0, start) for name, view in self.views.items()} | {"start": start}


def _view(rows: Tensor, length: int) -> Tensor:
    """(window, length, column): the window that begins at each row. It shares the memory of the rows."""
    return rows.unfold(0, length, 1).transpose(1, 2)


def find_bounds(series: Series, split: Split, fold: str | None) -> np.ndarray:
    """Find the rows where each series begins and where its training, validation and test rows end.

    Shares are rounded down for train and test, val is what is left, as in the published comparisons of forecasters.

    Args:
        series: The series.
        split: Shares of train, val and test, or dates where val, test and optionally what follows them begin.
        fold: As of `read_fold`: each series is cut into one more blocks than folds. The block after that of the fold's
            number is the test, all before it is for training, but for the share of validation at its end.

    Returns:
        int64 of shape (series, 4).

    Raises:
        UserError: The split is not valid, or a date is outside of the series.
    """
    import pandas as pd

    begins, ends = series.bounds
    if isinstance(split[0], str):
        dates = pd.to_datetime(split, format="ISO8601", utc=True).tz_localize(None)
        times = series.times
        first, last = times.min(), times.max()
        if fold or not (dates.is_monotonic_increasing and first < dates[0] < dates[-1] <= last):
            raise UserError(
                f"data.split: {split} is not valid; give two or three dates within {first} to {last}, and no data.fold"
            )
        cuts = [begin + times[begin:end].searchsorted(dates) for begin, end in zip(begins, ends, strict=True)]
        return np.column_stack([begins, np.stack(cuts), ends])[:, :4]

    shares = [float(share) for share in split]
    if len(shares) != 3 or shares[0] == 0 or min(shares) < 0 or not math.isclose(sum(shares), 1):
        raise UserError(f"data.split: {split} is not valid; give shares of train, val and test that sum to 1, or dates")
    train, val, test = shares
    rows = ends - begins
    if fold is not None:
        number, count = read_fold(fold)
        test_begin, test_end = (rows * (number + more) // (count + 1) for more in (1, 2))
        train_end = test_begin - np.floor(test_begin * val / (train + val)).astype(int)
    else:
        test_begin, test_end = rows - np.floor(rows * test + 1e-9).astype(int), rows  # 100 x 0.29 is 28.999...
        train_end = np.floor(rows * train + 1e-9).astype(int) if val else test_begin
    return np.column_stack([begins, begins + train_end, begins + test_begin, begins + test_end])


def find_starts(bounds: np.ndarray, context_length: int, horizon: int, where: str) -> dict[str, Tensor]:
    """Say where the windows of train, val and test begin.

    The past of validation and test windows may reach back into the rows before; what they forecast may not.

    Args:
        bounds: As of `find_bounds`.
        context_length: Rows of the past.
        horizon: Rows to forecast.
        where: What the series are, for the error message.

    Returns:
        For each split that has rows: the rows where the past of its windows begins, int64 of shape (window,).

    Raises:
        UserError: A split has rows, but too few for one window.
    """
    starts = {}
    for number, split in enumerate(SPLITS):
        begins, ends = bounds[:, number], bounds[:, number + 1]
        first = np.maximum(begins - context_length, bounds[:, 0])
        after = np.maximum(ends - context_length - horizon + 1, first)
        if split == "train" or (begins < ends).any():
            ranges = [torch.arange(*pair) for pair in zip(first.tolist(), after.tolist(), strict=True)]
            starts[split] = torch.cat(ranges)
            if not len(starts[split]):
                raise UserError(
                    f"{where}: {(ends - begins).max()} {split} rows are too few for one window; give more rows, a "
                    "smaller data.context_length or data.horizon, or another data.split"
                )
    return starts
