"""A table becomes series at equal steps of time: bad rows and gaps are refused, or left out and
filled.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from lightning.pytorch.utilities import rank_zero_info
from pandas.tseries.frequencies import to_offset

from litlab.data.columns import fit_column, read_columns
from litlab.data.files import (
    Cells,
    FileFormat,
    Frame,
    Policy,
    Source,
    check_columns,
    drop_bad_rows,
    name_source,
    read_cells,
)
from litlab.errors import UserError

Gaps = Literal["error", "interpolate"]
_TOLERANCE = 0.1  # of a step: times so near to the grid are on it
# Share of the times of a series that may be off the grid, and of a column that may be made up
_MOST_WRONG = 0.1


@dataclass(frozen=True)
class Series:
    """One series or several at equal steps of time, one below the other, without gaps.

    Args:
        table: float64 columns; the index has the name of the series and the time of each row.
        freq: Time from row to row, a pandas offset alias.
    """

    table: Frame
    freq: str

    @property
    def times(self) -> Any:
        """Time of each row, a DatetimeIndex: in UTC, or without a zone what the clock on the wall
        said.
        """
        return self.table.index.get_level_values(1)


def read_series(
    source: Source,
    known: Mapping[str, Any],
    form: FileFormat,
    gaps: Gaps = "error",
    bad_rows: Policy = "error",
    setting: str = "data.path",
) -> Series:
    """Read series from a file, see `read_frame`.

    A time that is nearer to the grid of equal steps than a tenth of a step is moved onto it; the
    rows may be in any order. Times with UTC offsets count in UTC, or as the clock on the wall where
    that shows the same hour in all rows.

    Args:
        source: The file, or what was sent.
        known: Settings of `SeriesData`, or metadata, by name: ``time_column``; ``series_column``,
            None where there is one series; ``targets``, the columns to read, None for all that hold
            numbers; ``freq``, None where the step is to be found.
        form: How its cells are written.
        gaps: Whether missing rows and values are errors or interpolated linearly.
        bad_rows: Whether rows without a time, with text for a number, with a time that is there
            twice or is off the step are errors or left out.
        setting: Where the file's name comes from, for messages.

    Raises:
        UserError: It can't be read, a column is missing or holds no numbers, or the rows make no
            regular series.
    """
    where = name_source(source, setting)
    time_column, series_column, targets = (
        known[name] for name in ("time_column", "series_column", "targets")
    )
    raw = read_cells(source, form, setting=setting, bad_rows=bad_rows)
    kinds: Any = {
        series_column: "category",
        time_column: "time",
        **dict.fromkeys(targets or [], "number"),
    }
    kinds.pop(None, None)  # there is one series
    check_columns(raw, where, dict.fromkeys(kinds, "correct it, or the setting that names it"))
    if not targets:  # all others that hold numbers
        kinds = dict.fromkeys(raw, "series") | kinds
    columns = {name: fit_column(raw[name], kind, form, where) for name, kind in kinds.items()}
    needed = {time_column, series_column}
    rows = read_columns(raw, columns, form, where, needed=needed, bad_rows=bad_rows)
    times, names = rows[time_column], rows.get(series_column, pd.Series("", rows.index))
    numbers = rows[list(targets)] if targets else rows.select_dtypes("number")
    if numbers.empty:
        raise UserError(
            f"{where}: there is no column of numbers besides that of the times; add one"
        )

    # Each series is on a grid of its own.
    parts = dict(list(numbers.groupby(names, sort=False)))
    longest = max(parts.values(), key=len)
    freq = known["freq"] or _find_step(times[longest.index], where)
    parts = {
        name: _lay_on_grid(part, times[part.index], freq, bad_rows, where)
        for name, part in parts.items()
    }
    return Series(_fill_gaps(pd.concat(parts), gaps, where), freq)


def _find_step(times: Cells, where: str) -> str:
    """Return the step that most stretches of ten times have; where all jitter, the middle
    difference, rounded.
    """
    index: Any = pd.DatetimeIndex(times).unique().sort_values()[:10_000]
    if len(index) < 2:
        raise UserError(f"{where}: one time makes no series; give more rows")
    stretches = [index[start : start + 10] for start in range(0, len(index) - 2, 10)]
    # Pandas 3 announces that it will return an offset
    with warnings.catch_warnings(action="ignore"):
        steps: Any = pd.Series(map(pd.infer_freq, stretches), dtype=object)
        if steps.any():
            return steps.mode()[0]
        step = index.diff().median()
        for unit in ("D", "h", "min", "s"):
            if abs(step.round(unit) - step) < step / 50:
                step = step.round(unit)
        return str(pd.infer_freq(pd.date_range(index[0], periods=3, freq=step)))


def _lay_on_grid(rows: Frame, times: Cells, freq: str, bad_rows: Policy, where: str) -> Frame:
    """Return the rows of one series by the times of a grid, NaN where there is no row."""
    # Twice as many times as there are: a wrong year is off this grid, and makes none of millions of
    # rows.
    grid = _follow(times.min(), freq, 2 * len(times))
    # Where times jitter, through the middle
    grid += (times - grid[grid.get_indexer(times, method="nearest")]).median()
    tolerance = _TOLERANCE * grid.diff().min()
    places = pd.Series(grid.get_indexer(times, method="nearest", tolerance=tolerance), times.index)

    wrong = (places < 0) | places.duplicated()
    if wrong.mean() > _MOST_WRONG:
        raise UserError(
            f"{where}: {wrong.mean():.0%} of the times are there twice or off the step of {freq}, "
            f"the first in row {wrong.idxmax()}; correct them, or set freq, or series_column where "
            "there are several series"
        )
    problem = (
        f"is there twice or off the step of {freq}; where clocks were put back, add UTC offsets"
    )
    problems = {row: f"{time} {problem}" for row, time in times[wrong].items()}
    rows = drop_bad_rows(rows, problems, bad_rows, where)
    places = places[rows.index]
    return rows.set_axis(grid[places]).reindex(grid[places.min() : places.max() + 1])


def _fill_gaps(table: Frame, gaps: Gaps, where: str) -> Frame:
    """Interpolate what is missing within each series, and say how much; or refuse to."""
    empty = table.isna()
    holes = empty.any(axis=1)
    if not holes.any():
        return table
    share = empty.groupby(level=0).mean().max(axis=None)
    summary = (
        f"{where}: {holes.sum():,} of {len(table):,} rows are missing or lack a value ({share:.1%} "
        f"of a column), the first at {holes.idxmax()[1]}"
    )
    if share > _MOST_WRONG:
        raise UserError(
            f"{summary}; that is too much to make up: fill it, leave it out, or use "
            "--data.freq STEP"
        )
    if gaps == "error":
        raise UserError(f"{summary}; add them, or use --data.gaps interpolate")
    rank_zero_info(f"{summary}; they are interpolated (data.gaps)")
    filled = table.groupby(level=0, sort=False).transform(
        lambda column: column.interpolate(limit_area="inside")
    )
    return filled.dropna()  # at the ends of a series there is nothing to interpolate from


def read_last_rows(
    source: Source, known: Mapping[str, Any], *, setting: str = "--input", **options: Any
) -> Series:
    """Read the rows that forecasts are made from; columns that the training did not have are
    ignored.

    Args:
        source: The file, or what was sent.
        known: Fields of the checkpoint's metadata by their names.
        setting: Where the file's name comes from, for messages.
        **options: form, gaps and bad_rows, as of `read_series`.

    Returns:
        The last ``context_length`` rows of each series, and below them ``horizon`` rows that repeat
        the last one, with the times that follow.

    Raises:
        UserError: It is missing, wrong, too short, or not like that of the training.
    """
    series = read_series(source, known, setting=setting, **options)
    least = known["context_length"]
    windows = {}
    for name, part in series.table.groupby(level=0, sort=False):
        if len(part) < least:
            raise UserError(
                f"{setting}: {name or 'the series'} has {len(part)} rows; give the "
                f"last {least} or more"
            )
        past: Any = part.droplevel(0).tail(least)
        future = _follow(past.index[-1], series.freq, known["horizon"])[1:]
        windows[name] = past.reindex(past.index.append(future), method="ffill")
    return Series(pd.concat(windows), series.freq)


def _follow(first: Any, freq: str, count: int) -> Any:
    """Return a time and those that follow it at equal steps, also where months begin on another day
    than the first.
    """
    start = to_offset(freq).rollback(first)
    return pd.date_range(start, periods=count + 1, freq=freq) + (first - start)
