"""Where training, validation and test rows begin and end."""

import math

import numpy as np

from litlab.data.series.timeline import Series
from litlab.data.times import parse_time
from litlab.errors import UserError

Split = list[float] | list[str]

FRACTIONS = [0.7, 0.1, 0.2]


def check_split(split: Split) -> None:
    """Refuse a split that fits no series: neither three shares that sum to 1 nor two or three ascending dates.

    Raises:
        UserError: It is such a split, has a date that can't be read, or leaves no training rows.
    """
    shares = [share for share in split if not isinstance(share, str)]
    if not shares:
        if len(split) not in (2, 3):
            raise UserError(
                f"data.split: {len(split)} dates; give that of the first validation row, that of the first test row, "
                f"and optionally that of the first row after the test"
            )
        times = [_parse(str(date))[0] for date in split]
        if times != sorted(set(times)):
            raise UserError(f"data.split: {', '.join(map(str, split))} are not in ascending order; sort them")
    elif len(shares) != len(split) or len(split) != 3 or min(shares) < 0 or not math.isclose(sum(shares), 1):
        raise UserError(
            f"data.split: {split} is not valid; give three shares (train, val, test) that sum to 1, "
            f"or two or three dates"
        )
    elif shares[0] == 0:
        raise UserError("data.split: no training rows; give train a share above 0")


def _parse(date: str) -> tuple[np.datetime64, bool]:
    try:
        time, utc = parse_time(date)
    except ValueError as error:
        raise UserError(f"data.split: {date!r} is not a date ({error}); write it like 2024-01-31") from error
    return np.datetime64(time, "s"), utc


def split_rows(split: Split, series: Series, name: str) -> tuple[int, int, int]:
    """Find the first validation row, the first test row, and the end of the test.

    Shares are rounded down for train and test, val is what is left, as in the published comparisons of forecasters.

    Args:
        split: What `check_split` let through.
        series: The series.
        name: What it is, for the error message.

    Raises:
        UserError: A date is outside the series, or has a UTC offset and the series has none.
    """
    times, rows = series.times, len(series.times)
    if not isinstance(split[0], str):
        train, val, test = (float(share) for share in split)
        test_rows = math.floor(rows * test + 1e-9)  # 100 x 0.29 is 28.999...
        train_rows = math.floor(rows * train + 1e-9) if val else rows - test_rows
        return train_rows, rows - test_rows, rows
    after_last = series.step.after(times[-1], 1)[0]
    ends = []
    for number, date in enumerate(split):
        time, aware = _parse(str(date))
        if aware and not series.utc:
            raise UserError(f"data.split: {date} has a UTC offset, the times of {name} have none; leave it out")
        if not times[0] < time <= (after_last if number == 2 else times[-1]):
            first, last = (str(t).replace("T", " ") for t in times[[0, -1]])
            raise UserError(f"data.split: {date} is outside {name}, {first} to {last}; choose another date")
        ends.append(int(np.searchsorted(times, time)))
    return ends[0], ends[1], ends[2] if len(ends) == 3 else rows


def split_windows(ends: tuple[int, int, int], context_length: int, horizon: int, name: str) -> dict[str, range]:
    """Say which windows make up train, val and test.

    The past of validation and test windows may reach back into the rows before; what they forecast may not.

    Args:
        ends: Ends of the training, the validation and the test rows.
        context_length: Rows of the past.
        horizon: Rows to forecast.
        name: What the series is, for the error message.

    Returns:
        For each split that has rows: the rows where the past of its windows begins.

    Raises:
        UserError: A split has rows, but too few for one window.
    """
    windows = {}
    for split, begin, end in zip(("train", "val", "test"), (context_length, *ends[:2]), ends, strict=True):
        if split != "train" and end == begin:
            continue
        if end - begin < horizon:
            rows, needed, sum_ = end - begin, horizon, f"data.horizon {horizon}"
            if split == "train":
                rows, needed, sum_ = end, context_length + horizon, f"data.context_length {context_length} + {sum_}"
            raise UserError(
                f"{name}: {rows} {split} rows are too few for one window of {needed} ({sum_}); give more rows, a "
                f"smaller data.context_length or data.horizon, or another data.split"
            )
        windows[split] = range(begin - context_length, end - horizon - context_length + 1)
    return windows
