"""All windows of some series, cut out by indexing, and which of them are for training, validation and test."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.series.regular import Series
from litlab.data.split import SPLITS, read_fold
from litlab.errors import UserError

Split = list[float] | list[str]
FRACTIONS = [0.7, 0.1, 0.2]


class Windows(Dataset[dict[str, Tensor]]):
    """Windows of equal length; indexed by a tensor, it returns a batch.

    A window's rows lie in memory one after the other, so a batch is a row-wise gather from a strided view of the
    series: nothing but its start is stored per window, and no Python runs per window.

    Args:
        values: float32 of shape (time, channel), in memory or on a device.
        calendar: float32 of shape (time, feature), on the same device; None: there are no covariates.
        starts: Rows where the past of each window begins, int64 of shape (window,).
        context_length: Rows of the past.
        horizon: Rows of the future.
        known: Whether the future is known; else the batches have none.
    """

    def __init__(
        self,
        values: Tensor,
        calendar: Tensor | None,
        starts: Tensor,
        context_length: int,
        horizon: int,
        *,
        known: bool = True,
    ) -> None:
        self.values = values
        self.starts = starts.to(values.device)
        self.views = {"past": _view(values, context_length)}
        if known:
            self.views["future"] = _view(values[context_length:], horizon)
        if calendar is not None:
            self.views["calendar"] = _view(calendar, context_length + horizon)
        self.widths = {"calendar": calendar.shape[1]} if calendar is not None else {}

    @property
    def device(self) -> torch.device:
        """Where the series is."""
        return self.values.device

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the windows, int64 of shape (batch,), on the CPU.

        Returns:
            past: float32 (batch, context_length, channel); future: (batch, horizon, channel), where it is known;
            calendar: (batch, context_length + horizon, feature), where there are covariates; start: int64 (batch,),
            row where the past begins.
        """
        start = self.starts.index_select(0, index.to(self.values.device, non_blocking=True))
        channels = self.values.shape[1]
        batch = {
            name: view.index_select(0, start).view(len(start), -1, self.widths.get(name, channels))
            for name, view in self.views.items()
        }
        return {**batch, "start": start}


def _view(rows: Tensor, length: int) -> Tensor:
    """(window, length x column): the window that begins at each row. It shares the memory of the rows."""
    columns = rows.shape[1]
    return rows.contiguous().flatten().unfold(0, length * columns, columns)


def check_split(split: Split) -> None:
    """Refuse a split that fits no series: neither three shares that sum to 1 nor two or three ascending dates.

    Raises:
        UserError: It is such a split, has a date that can't be read, or leaves no training rows.
    """
    if isinstance(split[0], str):
        times = [read_date(date) for date in split]
        is_valid = len(split) in (2, 3) and times == sorted(set(times))
    else:
        shares = [float(share) for share in split]
        is_valid = len(shares) == 3 and shares[0] > 0 and min(shares) >= 0 and math.isclose(sum(shares), 1)
    if not is_valid:
        raise UserError(
            f"data.split: {split} is not valid; give three shares (train, val, test) that sum to 1, or the dates of "
            "the first validation row, the first test row and optionally the first row after it"
        )


def read_date(date: object) -> Any:
    """Read a date of a split; one with a UTC offset is brought to UTC."""
    import pandas as pd

    try:
        time: Any = pd.Timestamp(str(date))
    except ValueError as error:
        raise UserError(f"data.split: {date!r} is no date; write it like 2024-01-31") from error
    return time if time.tz is None else time.tz_convert("UTC").tz_localize(None)


def find_bounds(series: Series, split: Split, fold: str | None, where: str) -> np.ndarray:
    """Find the rows where each series begins and where its training, validation and test rows end.

    Shares are rounded down for train and test, val is what is left, as in the published comparisons of forecasters.

    Args:
        series: The series.
        split: What `check_split` let through.
        fold: As of `read_fold`: each series is cut into one more blocks than folds. The block after that of the fold's
            number is the test, all before it is for training, but for the share of validation at its end.
        where: What they are, for the error message.

    Returns:
        int64 of shape (series, 4).

    Raises:
        UserError: A date is outside of the series.
    """
    begins, ends = np.array(series.begins), np.array(series.ends)
    if isinstance(split[0], str):
        dates, start, end = [read_date(date) for date in split], series.times.min(), series.times.max()
        if not (start < dates[0] and dates[1] <= end):
            raise UserError(f"data.split: {where} is from {start} to {end}, and not {split}; choose other dates")
        parts = [series.times[begin:end].searchsorted(dates) for begin, end in zip(begins, ends, strict=True)]
        cuts = begins[:, None] + np.stack(parts)
        return np.column_stack([begins, cuts, ends] if len(dates) == 2 else [begins, cuts])

    train, val, test = (float(share) for share in split)
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
        before, ends = bounds[:, number], bounds[:, number + 1]
        if split != "train" and (before == ends).all():
            continue
        first = np.maximum(before - context_length, bounds[:, 0])
        after = np.maximum(ends - horizon - context_length + 1, first)
        if (first == after).all():
            needed = horizon if number else context_length + horizon
            raise UserError(
                f"{where}: {(ends - before).max()} {split} rows are too few for one window of {needed}; give more "
                "rows, a smaller data.context_length or data.horizon, or another data.split"
            )
        starts[split] = torch.cat([torch.arange(*ends) for ends in zip(first.tolist(), after.tolist(), strict=True)])
    return starts
