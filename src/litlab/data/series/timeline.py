"""A series at equal steps of time: bad rows and gaps are refused, or left out and filled."""

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from litlab.data.bad_rows import BadRows, count_text, settle, settle_and_tell
from litlab.data.series.disorder import note_disorder, note_off_step, note_open_ends, time_text
from litlab.data.series.reading import Table
from litlab.data.series.step import Step, find_step
from litlab.errors import UserError

_MOST_FILLED = 10  # per row that is there; more is not a gap but a wrong time
_FARTHEST = 1e9  # scaled; errors are squared in float32


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
        dropped: Number of bad rows that were left out of the file.
        lines: Line of the file on which each row begins, 0 for one that was interpolated; None where there is no file.
    """

    times: np.ndarray
    values: np.ndarray
    names: list[str]
    step: Step
    utc: bool = False
    filled: str = ""
    dropped: int = 0
    lines: np.ndarray | None = None

    @property
    def digest(self) -> str:
        """A checksum of names, times and values."""
        content = repr(self.names).encode() + self.times.tobytes() + self.values.tobytes()
        return hashlib.sha256(content).hexdigest()

    def select(self, names: list[str]) -> "Series":
        """Take some of the columns, in the order wanted."""
        columns = [self.names.index(name) for name in names]
        return replace(self, values=self.values[:, columns], names=list(names))

    def scaled(self, mean: list[float], scale: list[float]) -> Tensor:
        """Bring the columns to a common scale, float32 (time, column): subtract `mean` and divide by `scale`.

        Raises:
            UserError: A value is too far from the mean for float32.
        """
        with np.errstate(over="ignore"):
            values = ((self.values - np.array(mean)) / np.array(scale)).astype(np.float32)
        place, column = map(int, np.unravel_index(np.argmax(np.abs(values)), values.shape))
        if not np.abs(values[place, column]) < _FARTHEST:
            raise UserError(
                f"data: column {self.names[column]!r} is {self.values[place, column]:g} {self.where(place)}, far "
                f"outside the range of the training rows; correct it"
            )
        return torch.from_numpy(values)

    @property
    def remarks(self) -> str:
        """What was interpolated and left out, as the description of a data set ends."""
        return (f", {self.filled}" if self.filled else "") + count_text(self.dropped)

    def where(self, place: int) -> str:
        """Return a row as messages name it, with its time."""
        line = int(self.lines[place]) if self.lines is not None else 0
        return f"in line {line} ({time_text(self.times[place])})" if line else f"at {time_text(self.times[place])}"


def regular(table: Table, gaps: Literal["error", "interpolate"], step: Step | None = None) -> Series:
    """Make rows come at equal steps and hold a number each: take out bad ones and interpolate, where that is wanted.

    Args:
        table: What was read. Its policy says whether rows that were unreadable, or whose times are out of order, there
            twice or off the step, are errors or left out.
        gaps: Whether missing times and values, also of rows that are left out, are errors or interpolated linearly.
        step: The step that is expected; None: the most frequent one.

    Returns:
        The series, from the first time that is left to the last one; no value is NaN.

    Raises:
        UserError: Something is wrong or missing, and may not be left out or interpolated.
    """
    table = note_disorder(table)
    if len(table.times) > 1:
        own = find_step(table.times)
        expected = step or own
        regular_so = expected.fitting(table.times).all() and _gapless(expected.positions(table.times))
        if own != expected and not regular_so:
            settle((table.bad, len(table.lines)))
            raise UserError(
                f"{table.path}: its rows are {own} apart, the checkpoint was trained on {step}; use rows with that step"
            )
        table = note_off_step(table, expected)
    if gaps == "interpolate" or table.bad.policy == "drop":
        table = note_open_ends(table)
    settle_and_tell(table.bad, len(table.lines))
    if step is None:
        if len(table.times) < 2:
            raise UserError(f"{table.path}: only one row, so the time step is unknown; add more rows")
        step = find_step(table.times)
    return _filled(table, gaps, step)


def _gapless(position: np.ndarray) -> bool:
    return bool((np.diff(position) == 1).all())


def _filled(table: Table, gaps: str, step: Step) -> Series:
    """Return the series of rows that are in order and on the step, with what is missing between them."""
    position = step.positions(table.times)
    missing = np.isnan(table.values)
    if gaps == "error":
        _refuse_gaps(table, position, missing, step)
    size = int(position[-1]) + 1
    if size >= len(position) * (_MOST_FILLED + 1):
        gap = int(np.diff(position).argmax()) + 1
        raise UserError(
            f"{table.path}, line {table.lines[gap]}: {_missing_rows(table, position, gap)}, as the step is {step}; "
            f"correct the time, as that is too much to interpolate"
        )
    steps = np.arange(size)
    values = np.empty((size, len(table.names)))
    for number, name in enumerate(table.names):
        known = ~missing[:, number]
        for end, which in ((0, "first"), (-1, "last")):
            if not known[end]:
                raise UserError(
                    f"{table.path}, line {table.lines[end]}: column {name!r} is empty in the {which} row, which can't "
                    f"be interpolated; fill it in or delete the row"
                )
        column = table.values[:, number]
        whole = known.all() and _gapless(position)
        values[:, number] = column if whole else np.interp(steps, position[known], column[known])
    added, empty = size - len(position), int(missing.sum())
    filled = f"{added:,} missing rows and {empty:,} empty values interpolated" if added or empty else ""
    times = np.concatenate([table.times[:1], step.after(table.times[0], size - 1)])
    lines = np.zeros(size, dtype=np.int64)
    lines[position] = table.lines
    return Series(times, values, table.names, step, table.utc, filled, len(table.bad), lines)


def _refuse_gaps(table: Table, position: np.ndarray, missing: np.ndarray, step: Step) -> None:
    """Raise one error for all missing rows and values."""
    problems = BadRows(table.path)
    for gap in (np.flatnonzero(np.diff(position) > 1) + 1).tolist():
        problems.add(table.lines[gap], f"{_missing_rows(table, position, gap)}, as the step is {step}")
    for place in np.flatnonzero(missing.any(1)).tolist():
        problems.add(table.lines[place], f"column {table.names[int(np.argmax(missing[place]))]!r} is empty")
    if not problems:
        return
    added, empty = int(position[-1]) + 1 - len(position), int(missing.sum())
    counts = " and ".join(
        f"{count:,} {what}{'s' * (count != 1)}" for count, what in ((added, "row"), (empty, "value")) if count
    )
    message = problems.message(len(table.lines))
    if len(problems) > 1:
        message = f"{table.path}: {counts} are missing: {problems.listed()}"
    dropped = f" ({len(table.bad):,} bad row{'s were' if len(table.bad) > 1 else ' was'} dropped)" if table.bad else ""
    raise UserError(f"{message}{dropped}; add what is missing, or use --data.gaps interpolate")


def _missing_rows(table: Table, position: np.ndarray, gap: int) -> str:
    count = int(position[gap] - position[gap - 1]) - 1
    before, after = time_text(table.times[gap - 1]), time_text(table.times[gap])
    return f"{count:,} row{'s are' if count > 1 else ' is'} missing between {before} and {after}"
