"""Times at equal steps, calendar months included: finding the step, refusing or filling gaps, going on."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from project.data.series.reading import Table
from project.errors import UserError

_DAY = 86_400
_UNITS = (("week", 7 * _DAY), ("day", _DAY), ("hour", 3600), ("minute", 60), ("second", 1))
_MOST_FILLED = 10  # per row that is there; more is no gap but a wrong time


@dataclass(frozen=True)
class Step:
    """The time from one row to the next: so many seconds, or so many calendar months.

    Args:
        seconds: Seconds, 0 where it is months.
        months: Months, 0 where it is seconds.
        at_end: Whether a month's row has its place counted from the end of the month, as in 01-31, 02-28, 03-31.
    """

    seconds: int = 0
    months: int = 0
    at_end: bool = False

    def __str__(self) -> str:
        """Such as "1 hour" or "3 months"."""
        count, unit = self.months, "month"
        if self.seconds:
            unit, size = next((unit, size) for unit, size in _UNITS if self.seconds % size == 0)
            count = self.seconds // size
        return f"{count} {unit}{'s' * (count != 1)}"

    @property
    def season(self) -> int:
        """Rows of the season that is usual for this step: a day, for daily rows a week, for longer ones a year."""
        if self.months:
            return 12 // self.months if 12 % self.months == 0 else 1
        if self.seconds < _DAY:
            return _DAY // self.seconds if _DAY % self.seconds == 0 else 1
        return {_DAY: 7, 7 * _DAY: 52}.get(self.seconds, 1)

    def positions(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count the steps from the first time.

        Args:
            times: datetime64[s] of shape (row,).

        Returns:
            Whole steps from the first row, int64 of shape (row,), and whether nothing is left over, bool (row,).
        """
        if self.seconds:
            steps, rest = np.divmod((times - times[0]).astype(np.int64), self.seconds)
            return steps, rest == 0
        month, offset = _in_month(times, self.at_end)
        steps, rest = np.divmod(month - month[0], self.months)
        return steps, (rest == 0) & (offset == offset[0])

    def after(self, time: np.datetime64, count: int) -> np.ndarray:
        """Continue a series.

        Args:
            time: The last time, datetime64[s].
            count: How many times to add.

        Returns:
            datetime64[s] of shape (count,).
        """
        steps = np.arange(1, count + 1)
        if self.seconds:
            return time + (steps * self.seconds).astype("timedelta64[s]")
        month, offset = _in_month(np.array([time]), self.at_end)
        months = (month + steps * self.months + self.at_end).astype("datetime64[M]")
        return months.astype("datetime64[s]") + offset.astype("timedelta64[s]")


def _in_month(times: np.ndarray, at_end: bool) -> tuple[np.ndarray, np.ndarray]:
    """Number of the month, and the seconds since its start (or, negative, until its end), int64 (row,)."""
    month = times.astype("datetime64[M]").astype(np.int64)
    edge = (month + at_end).astype("datetime64[M]").astype("datetime64[s]")
    return month, (times - edge).astype(np.int64)


def _most_frequent(values: np.ndarray) -> tuple[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()]), int(counts.max())


def find_step(times: np.ndarray) -> Step:
    """Find the step that most rows have.

    Args:
        times: datetime64[s] of shape (row,), ascending, two or more.
    """
    seconds, _ = _most_frequent(np.diff(times).astype(np.int64))
    if seconds >= 28 * _DAY:
        (start, from_start), (_, from_end) = (_most_frequent(_in_month(times, end)[1]) for end in (False, True))
        # Where both hold, as for 07-31 and 08-31, a day that not all months have means the end of the month.
        at_end = from_end > from_start or (from_end == from_start and start >= 28 * _DAY)
        month, offset = _in_month(times, at_end)
        usual, count = _most_frequent(offset)
        if count > len(times) / 2:
            return Step(months=_most_frequent(np.diff(month[offset == usual]))[0], at_end=at_end)
    return Step(seconds=seconds)


@dataclass(frozen=True)
class Series:
    """Numbers at equal steps of time, without gaps.

    Args:
        times: datetime64[s] of shape (time,).
        values: float64 of shape (time, column).
        names: Names of the columns.
        step: Time from row to row.
        utc: Whether the times are UTC; else they are what the user's clock said.
        filled: What was interpolated, in words; empty where nothing was.
    """

    times: np.ndarray
    values: np.ndarray
    names: list[str]
    step: Step
    utc: bool = False
    filled: str = ""

    def select(self, names: list[str]) -> "Series":
        """Take some of the columns.

        Args:
            names: Their names, in the order wanted.
        """
        columns = [self.names.index(name) for name in names]
        return replace(self, values=self.values[:, columns], names=list(names))

    def scaled(self, mean: list[float], scale: list[float]) -> Tensor:
        """Bring the columns to a common scale.

        Args:
            mean: What is subtracted from each column.
            scale: What each column is divided by then.

        Returns:
            float32 (time, column).

        Raises:
            UserError: A value is too far from the mean for float32.
        """
        with np.errstate(over="ignore"):
            values = ((self.values - np.array(mean)) / np.array(scale)).astype(np.float32)
        if not np.isfinite(values).all():
            row, column = map(int, np.argwhere(~np.isfinite(values))[0])
            raise UserError(
                f"data: column {self.names[column]!r} is {self.values[row, column]:g} at {_text(self.times[row])}, "
                f"beyond all scale of the training rows; correct it"
            )
        return torch.from_numpy(values)


def regular(table: Table, gaps: Literal["error", "interpolate"], step: Step | None = None) -> Series:
    """Check that the rows come at equal steps and hold a number each; interpolate what is missing if wanted.

    Args:
        table: What was read.
        gaps: Whether missing times and values are errors or interpolated linearly.
        step: The step that is expected; None: the most frequent one.

    Raises:
        UserError: Times are unsorted, duplicated or off the step; something is missing and not to be interpolated.
    """
    path, times, rows = table.path, table.times, table.rows
    _check_order(table)
    if step is None:
        if len(times) < 2:
            raise UserError(f"{path}: one row only, so that there is no step of time; give more")
        step = find_step(times)
    position, on_step = step.positions(times)
    if not (on_step.all() and (np.diff(position) == 1).all()):
        own = find_step(times)
        if own != step:
            raise UserError(f"{path}: its rows are {own} apart, the checkpoint was trained on {step}; give such rows")
        if not on_step.all():
            wrong = int(np.argmin(on_step))
            raise UserError(
                f"{path}, row {rows[wrong]}: {_text(times[wrong])} after {_text(times[wrong - 1])} is no multiple of "
                f"the step of {step}; correct or delete the row"
            )
        gap = int(np.argmax(np.diff(position) > 1)) + 1
        count = int(position[gap] - position[gap - 1] - 1)
        if gaps == "error" or position[-1] >= len(position) * (_MOST_FILLED + 1):
            remedy = "or set data.gaps to interpolate" if gaps == "error" else "that is too much to interpolate"
            raise UserError(
                f"{path}, row {rows[gap]}: {count} row{'s are' if count > 1 else ' is'} missing between "
                f"{_text(times[gap - 1])} and {_text(times[gap])}, as the step is {step}; add what is missing, {remedy}"
            )
    values, empty = _interpolated(table, position, gaps)
    missing = len(values) - len(times)
    filled = f"{missing:,} missing rows and {empty:,} empty values interpolated" if missing or empty else ""
    times = np.concatenate([times[:1], step.after(times[0], len(values) - 1)])
    return Series(times, values, table.names, step, table.utc, filled)


def _check_order(table: Table) -> None:
    distance = np.diff(table.times).astype(np.int64)
    if (distance > 0).all():
        return
    wrong = int(np.argmax(distance <= 0))
    here, before = _text(table.times[wrong + 1]), _text(table.times[wrong])
    where = f"{table.path}, row {table.rows[wrong + 1]}: {here}"
    if here == before:
        clocks = "" if table.utc else " (where clocks were put back, add UTC offsets)"
        raise UserError(f"{where} is there twice, also in row {table.rows[wrong]}; delete one of them{clocks}")
    raise UserError(f"{where} comes after {before}; sort the rows by time")


def _interpolated(table: Table, position: np.ndarray, gaps: str) -> tuple[np.ndarray, int]:
    """Values at every step, and how many were empty in the rows that there are."""
    missing = np.isnan(table.values)
    if missing.any() and gaps == "error":
        place, column = np.argwhere(missing)[0].tolist()
        raise UserError(
            f"{table.path}, row {table.rows[place]}: column {table.names[column]!r} is empty; fill it in, or set "
            f"data.gaps to interpolate"
        )
    steps = np.arange(position[-1] + 1)
    if not missing.any() and len(steps) == len(position):
        return table.values, 0
    values = np.empty((len(steps), len(table.names)))
    for number, name in enumerate(table.names):
        known = ~missing[:, number]
        for end, which in ((0, "first"), (-1, "last")):
            if not known[end]:
                raise UserError(
                    f"{table.path}, row {table.rows[end]}: column {name!r} is empty in the {which} row, which can't be "
                    f"interpolated; fill it in or delete the row"
                )
        values[:, number] = np.interp(steps, position[known], table.values[known, number])
    return values, int(missing.sum())


def _text(time: np.datetime64) -> str:
    return str(time).replace("T", " ")
