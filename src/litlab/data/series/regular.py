"""A table becomes series at equal steps of time: bad rows and gaps are refused, or left out and filled."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.frames import (
    Column,
    FileFormat,
    Frame,
    Policy,
    Source,
    check_columns,
    drop_bad_rows,
    is_mostly_numbers,
    read_frame,
    read_times,
    to_numbers,
)  # fmt: skip
from litlab.errors import UserError
from litlab.util.text import some

Gaps = Literal["error", "interpolate"]
_TOLERANCE = 0.1  # of a step: times so near to the grid are on it
_MOST_MADE_UP = 0.1  # share of a column that may be interpolated
_FARTHEST = 1e9  # deviations from the mean: networks answer as for the end of the scale
_MOST_TWICE = 0.1  # share of rows whose time is there already; more are several series
_SEASONS = {"B": 5, "D": 7, "W": 52, "MS": 12, "ME": 12, "QS": 4, "QE": 4}


@dataclass(frozen=True)
class Series:
    """One series or several at equal steps of time, one below the other, without gaps.

    Args:
        table: float64 columns; the index has the name of the series and the time of each row.
        freq: Time from row to row, a pandas offset alias.
        utc: Whether the times are UTC; else they are what the clock on the wall said.
        remarks: What was interpolated, as the description of a data set ends.
    """

    table: Frame
    freq: str
    utc: bool
    remarks: str = ""

    @property
    def times(self) -> Any:
        """Time of each row, a DatetimeIndex."""
        return self.table.index.get_level_values(1)

    @property
    def values(self) -> np.ndarray:
        """float64 of shape (row, column)."""
        return np.ascontiguousarray(self.table)

    @property
    def bounds(self) -> np.ndarray:
        """The rows where each series begins and ends, int64 of shape (2, series)."""
        sizes = self.table.groupby(level=0, sort=False).size()
        return np.stack([sizes.cumsum() - sizes, sizes.cumsum()])


def read_series(
    source: Source,
    time_column: str,
    targets: list[str] | None = None,
    series_column: str | None = None,
    *,
    form: FileFormat | None = None,
    freq: str | None = None,
    gaps: Gaps = "error",
    bad_rows: Policy = "error",
    setting: str = "data.path",
) -> Series:
    """Read series from a file, see `read_frame`.

    A time that is nearer to the grid of equal steps than a tenth of a step is moved onto it; the rows may be in any
    order. Times with UTC offsets count in UTC, or as the clock on the wall where that shows the same hour in all rows.

    Args:
        source: The file, or what was sent.
        time_column: Column of the times.
        targets: The columns to read; None: all that hold numbers.
        series_column: Column that tells which series a row belongs to; None: there is one.
        form: How its cells are written.
        freq: The step; None: it is found.
        gaps: Whether missing rows and values are errors or interpolated linearly.
        bad_rows: Whether rows without a time, with text for a number, with a time that is there twice or is off the
            step are errors or left out.
        setting: Where the file's name comes from; a model needs the columns where this is not data.path.

    Raises:
        UserError: It can't be read, a column is missing or holds no numbers, or the rows make no regular series.
    """
    import pandas as pd

    form = form or FileFormat()
    where = setting if isinstance(source, bytes | pd.DataFrame) else str(source)
    frame = read_frame(source, form, setting=setting, bad_rows=bad_rows)
    keys = [time_column, series_column] if series_column else [time_column]
    remedy = "the model needs it"
    if setting == "data.path":
        remedy = "set --data.time_column, --data.series_column or --data.targets"
    check_columns(frame, where, dict.fromkeys(keys + (targets or []), remedy))

    # Columns of numbers.
    problems, numbers, words = {}, {}, []
    for name in targets or frame.columns.drop(keys):
        values, wrong = to_numbers(frame[name], form, where)
        if targets or is_mostly_numbers(values, wrong):
            numbers[name] = values
            problems |= _name_cells(frame[name], wrong, "no number")
        else:
            words.append(name)
    if not numbers:
        raise UserError(f"{where}: there is no column of numbers besides that of the times; add one")
    if words:
        rank_zero_info(f"{where}: not among the targets, as they hold no numbers: {some(words)}")

    # Days are at equal steps on the wall alone, where clocks are put forward; hours are so in UTC alone.
    universal, wall = read_times(frame[time_column], form, where)
    utc = universal is not wall and wall.dt.time.nunique() > 1
    times = universal if utc else wall
    names: Any = frame[series_column] if series_column else pd.Series("", frame.index)
    problems |= _name_cells(frame[time_column], times.isna(), "no time") | _name_cells(names, names.isna(), "no name")
    rows = drop_bad_rows(pd.DataFrame(numbers), problems, bad_rows, where)
    times, names = times[rows.index], names[rows.index].astype(str)
    twice = pd.concat([names, times], axis=1).duplicated().mean()
    if twice > _MOST_TWICE:
        raise UserError(
            f"{where}: {twice:.0%} of the rows have the time of another row, as where there are several series; give "
            "one alone, or use --data.series_column COLUMN"
        )

    freq = freq or _find_step(times[names == names.mode()[0]], where)  # of the longest series
    parts = {
        name: _lay_on_grid(part, times[part.index], freq, bad_rows, f"{where}, series {name}" if name else where)
        for name, part in rows.groupby(names, sort=False)
    }
    table, remarks = _fill_gaps(pd.concat(parts), gaps, where)
    return Series(table, freq, utc, remarks)


def _name_cells(column: Column, mask: Column, problem: str) -> dict[Any, str]:
    return {row: f"column {column.name!r} is {column[row]!r}, {problem}" for row in column.index[mask]}


def _find_step(times: Column, where: str) -> str:
    """Return the step that most stretches of ten times have; where all jitter, the middle difference, rounded."""
    import pandas as pd

    index: Any = pd.DatetimeIndex(times).unique().sort_values()
    if len(index) < 2:
        raise UserError(f"{where}: one time makes no series; give more rows")
    stretches = [index[start : start + 10] for start in range(0, min(len(index), 10_000), 10)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas 3 announces that it will return an offset
        steps: Any = pd.Series([pd.infer_freq(stretch) for stretch in stretches if len(stretch) > 2], dtype=object)
        if steps.any():
            return steps.mode()[0]
        usual = index.diff().median()
        rounded = (usual.round(unit) for unit in ("D", "h", "min", "s"))
        step = next((near for near in rounded if abs(near - usual) < usual / 50), usual)
        return str(pd.infer_freq(pd.date_range(index[0], periods=3, freq=step)))


def _lay_on_grid(rows: Frame, times: Column, freq: str, bad_rows: Policy, where: str) -> Frame:
    """Return the rows of one series by the times of a grid, NaN where there is no row."""
    import pandas as pd

    # Twice as many times as there are: a wrong year is off this grid, and makes none of millions of rows.
    grid: Any = follow_times(times.min(), freq, 2 * len(times))
    grid += (times - grid[grid.get_indexer(times, method="nearest")]).median()  # where times jitter, through the middle
    step = (grid[1:] - grid[:-1]).min()
    places = pd.Series(grid.get_indexer(times, method="nearest", tolerance=_TOLERANCE * step), times.index)
    wrong = (places < 0) | places.duplicated()
    if wrong.mean() > 1 / 2:
        raise UserError(f"{where}: most times are not at equal steps of {freq}; correct them, or use --data.freq STEP")
    problems = {
        row: f"{times[row]} is there twice or off the step of {freq}; where clocks were put back, add UTC offsets"
        for row in times.index[wrong]
    }
    rows = drop_bad_rows(rows, problems, bad_rows, where)
    places = places[rows.index]
    return rows.set_axis(grid[places]).reindex(grid[places.min() : places.max() + 1])


def _fill_gaps(table: Frame, gaps: Gaps, where: str) -> tuple[Frame, str]:
    """Interpolate what is missing within each series, and say how much; or refuse to."""
    empty = table.isna()
    holes = empty.any(axis=1)
    if not holes.any():
        return table, ""
    most = empty.groupby(level=0).mean().max(axis=None)
    share = empty.mean(axis=None)
    first, count = holes.idxmax()[1], f"{holes.sum():,}"
    message = f"{where}: {count} of {len(table):,} rows are missing or lack a value, the first at {first}"
    if most > _MOST_MADE_UP:
        raise UserError(
            f"{message}; {most:.0%} of a column is too much to make up: fill it, leave it out, or use --data.freq STEP"
        )
    if gaps == "error":
        raise UserError(f"{message}; add them, or use --data.gaps interpolate ({share:.1%} would be made up)")
    filled = table.groupby(level=0, sort=False).transform(lambda column: column.interpolate(limit_area="inside"))
    # At the ends of a series there is nothing to interpolate from.
    return filled.dropna(), f", {count} rows with gaps interpolated ({share:.1%} of the values)"


def read_last_rows(source: Source, known: Mapping[str, Any], setting: str = "--input", **options: Any) -> Series:
    """Read the rows that forecasts are made from; columns that the training did not have are ignored.

    Args:
        source: The file, or what was sent.
        known: Fields of the checkpoint's metadata by their names.
        setting: Where the file's name comes from, for messages.
        **options: form, gaps and bad_rows, as of `read_series`.

    Returns:
        The last ``context_length`` rows of each series, and below them ``horizon`` rows that repeat the last one, with
        the times that follow.

    Raises:
        UserError: It is missing, wrong, too short, or not like that of the training.
    """
    import pandas as pd

    fields = {name: known[name] for name in ("time_column", "targets", "series_column", "freq")}
    series = read_series(source, **fields, **options, setting=setting)
    distance = abs((series.table - known["mean"]) / known["scale"])
    if distance.max(axis=None) > _FARTHEST:
        column = distance.max().idxmax()
        row: Any = distance[column].idxmax()
        raise UserError(
            f"{setting}: column {column!r} is {series.table[column][row]:g} at {row[1]}, far outside the range of the "
            "training rows; correct it"
        )

    least = known["context_length"]
    windows = {}
    for name, rows in series.table.groupby(level=0, sort=False):
        if len(rows) < least:
            which = f"series {name}: " if name else ""
            raise UserError(f"{setting}: {which}{len(rows)} rows, the model forecasts from {least}; give that many")
        past: Any = rows.droplevel(0).tail(least)
        future = follow_times(past.index[-1], series.freq, known["horizon"])[1:]
        windows[name] = past.reindex(past.index.append(future), method="ffill")
    return replace(series, table=pd.concat(windows))


def follow_times(first: Any, freq: str, count: int) -> Any:
    """Return a time and those that follow it at equal steps, also where months begin on another day than the first."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    start = to_offset(freq).rollback(first)
    return pd.date_range(start, periods=count + 1, freq=freq) + (first - start)


def write_times(times: Any, utc: bool) -> list[str]:
    """Return times as files of predictions have them: dates where all are midnights, +00:00 where they are UTC."""
    return (times.tz_localize("UTC") if utc else times).astype(str).tolist()


def find_season(freq: str) -> int:
    """Return the rows of the season that is usual for a step: a day, a week of days, a year of weeks or months."""
    import pandas as pd

    day = pd.date_range("2024-01-01", "2024-01-02", freq=freq, inclusive="left")
    return _SEASONS.get(freq.partition("-")[0]) or len(day) or 1
