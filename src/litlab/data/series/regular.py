"""A table becomes series at equal steps of time: bad rows and gaps are refused, or left out and filled."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.frames import (
    FileFormat,
    Policy,
    Source,
    check_columns,
    drop_bad_rows,
    is_mostly_numbers,
    read_frame,
    read_times,
    to_numbers,
)  # fmt: skip
from litlab.data.series.steps import find_grid
from litlab.errors import UserError
from litlab.util.text import some

if TYPE_CHECKING:
    import pandas as pd

Gaps = Literal["error", "interpolate"]
MOST_MADE_UP = 0.1  # share of a series that may be interpolated
_MOST_TWICE = 0.1  # share of rows whose time is there already; more are several series


@dataclass(frozen=True)
class Series:
    """One series or several at equal steps of time, one below the other, without gaps.

    Args:
        times: Time of each row, a DatetimeIndex.
        values: float64 of shape (row, column).
        names: Names of the columns.
        freq: Time from row to row, a pandas offset alias.
        utc: Whether the times are UTC; else they are what the user's clock said.
        series: Name of each series.
        ends: The row where each series ends.
        remarks: What was interpolated and left out, as the description of a data set ends.
    """

    times: Any
    values: np.ndarray
    names: list[str]
    freq: str
    utc: bool
    series: list[str]
    ends: list[int]
    remarks: str = ""

    @property
    def begins(self) -> list[int]:
        """The row where each series begins."""
        return [0, *self.ends[:-1]]

    @property
    def digest(self) -> str:
        """A checksum of all that is in it."""
        labels = repr((self.names, self.series, self.ends)).encode()
        times = self.times.to_numpy("datetime64[ns]").tobytes()
        return hashlib.sha256(labels + times + self.values.tobytes()).hexdigest()

    def name_row(self, row: int) -> str:
        """Return a row as messages name it."""
        series = self.series[int(np.searchsorted(self.ends, row, side="right"))]
        return f"at {self.times[row]}" + (f" of series {series!r}" if series else "")


def read_series(
    source: Source,
    time_column: str,
    targets: list[str] | None = None,
    series_column: str | None = None,
    *,
    form: FileFormat | None = None,
    freq: str | None = None,
    utc: bool | None = None,
    gaps: Gaps = "error",
    bad_rows: Policy = "error",
    setting: str = "data.path",
) -> Series:
    """Read series from a file, see `read_frame`.

    A time that is nearer to the grid of equal steps than a tenth of a step is moved onto it; the rows may be in any
    order.

    Args:
        source: The file, or what was sent.
        time_column: Column of the times.
        targets: The columns to read; None: all that hold numbers.
        series_column: Column that tells which series a row belongs to; None: there is one.
        form: How its cells are written.
        freq: The step; None: the one that fits best.
        utc: Whether times with UTC offsets count in UTC or as the clock on the wall said; None: what fits better.
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
    frame: Any = read_frame(source, form, setting=setting, bad_rows=bad_rows)
    keys = {time_column: "time_column", **({} if series_column is None else {series_column: "series_column"})}
    needed = dict.fromkeys(targets or [], "targets") | keys
    is_own = setting == "data.path"
    check_columns(
        frame, where, {n: f"set --data.{key}" if is_own else "the model needs it" for n, key in needed.items()}
    )

    # Rows without a number, a series or a time.
    problems: dict[Any, str] = {}
    columns = targets or [name for name in frame.columns if name not in keys]
    numbers = _read_numbers(frame[columns], form, where, problems, is_chosen=targets is not None)
    series: Any = frame[series_column].astype("string") if series_column else pd.Series("", frame.index, dtype="string")
    problems |= dict.fromkeys(series.index[series.isna()], f"column {series_column!r} is empty")
    universal, wall = read_times(frame[time_column], form, where)
    for row in universal.index[universal.isna()]:
        problems[row] = f"column {time_column!r} is {frame[time_column][row]}, no time"
    good = ~frame.index.isin(list(problems))
    if not good.any():
        drop_bad_rows(frame, problems, bad_rows, where)
    _refuse_interleaved(pd.DataFrame({"series": series, "time": universal})[good], where)

    # The longest series chooses the step, and the clock: that on the wall where only it goes in equal steps.
    clocks: dict[bool, Any] = {False: wall} if universal is wall else {True: universal, False: wall}
    if utc is not None and utc not in clocks:
        raise UserError(f"{where}: its times have no UTC offsets, those of the training have some; write them alike")
    longest = good & (series == series[good].mode()[0]).to_numpy(bool, na_value=False)
    if freq is None and universal[longest].nunique() < 2:
        raise UserError(f"{where}: only one row, so the time step is unknown; add more rows")
    grids = {
        is_utc: find_grid(pd.DatetimeIndex(times[longest].drop_duplicates().sort_values()), freq)
        for is_utc, times in clocks.items()
        if utc in (None, is_utc)
    }
    fits = {is_utc: grid for is_utc, grid in grids.items() if grid is not None}
    if not fits:
        raise _irregular(where, freq)
    is_utc = min(fits, key=lambda key: fits[key].error)
    step = fits[is_utc].freq

    # Each series gets the grid of its own times.
    pieces = {}
    may_trim = gaps == "interpolate" or bad_rows == "drop"
    for name, times in clocks[is_utc][good].groupby(series[good], sort=False):
        what = f"{where}, series {name!r}" if name else where
        pieces[str(name)] = _place_rows(numbers, times.sort_values(kind="stable"), step, may_trim, problems, what)
    drop_bad_rows(frame, dict(sorted(problems.items())), bad_rows, where)
    values, remarks = _fill_gaps(pieces, gaps, where)
    times = pd.DatetimeIndex(np.concatenate([times for times, _ in pieces.values()]))
    ends = np.cumsum([len(times) for times, _ in pieces.values()]).tolist()
    remarks += f", {len(problems):,} rows dropped" if problems else ""
    return Series(times, values, list(numbers.columns), step, is_utc, list(pieces), ends, remarks)


def _read_numbers(
    frame: Any, form: FileFormat, where: object, problems: dict[Any, str], *, is_chosen: bool
) -> "pd.DataFrame":
    """Return the columns that hold numbers, float64, and note the rows with something else in them."""
    import pandas as pd

    columns, words = {}, []
    for name in frame.columns:
        numbers, wrong = to_numbers(frame[name], form, where)
        if is_mostly_numbers(numbers, wrong):
            columns[name] = numbers
            problems |= {row: f"column {name!r} is {frame[name][row]!r}, no number" for row in wrong.index[wrong]}
        elif is_chosen:
            raise UserError(f"{where}: column {name!r} holds no numbers; give numbers, or leave it out of the targets")
        else:
            words.append(name)
    if not columns:
        raise UserError(f"{where}: there is no column of numbers besides that of the times; add one")
    if words:
        rank_zero_info(f"{where}: not among the targets, as they hold no numbers: {some(words)}")
    return pd.DataFrame(columns)


def _refuse_interleaved(rows: "pd.DataFrame", where: object) -> None:
    """Refuse rows of which many have the time of another one: they are several series."""
    share = rows.duplicated().mean()
    if share > _MOST_TWICE:
        raise UserError(
            f"{where}: {share:.0%} of the rows have the time of another row, as where there are several series; give "
            "one, or use --data.series_column COLUMN for that which tells them apart"
        )


def _irregular(where: object, freq: str | None) -> UserError:
    step = "" if freq is None else f" of {freq}"
    return UserError(
        f"{where}: most of its times are not at equal steps{step}, or one is far from all others; correct or resample "
        "them, or use --data.freq STEP"
    )


def _place_rows(
    numbers: "pd.DataFrame", times: "pd.Series", freq: str, may_trim: bool, problems: dict[Any, str], where: str
) -> tuple[Any, np.ndarray]:
    """Put the rows of one series on the grid of its times, and note those that have no place there.

    Args:
        numbers: The columns of all rows.
        times: Those of the series by its rows, ascending.
        freq: The step.
        may_trim: Whether rows without a value at the ends, from where nothing can be interpolated, are bad rows.
        problems: What is wrong with a row.
        where: What messages call the series.

    Returns:
        The times of the grid, and its rows, NaN where there is nothing.
    """
    import pandas as pd

    moments = pd.DatetimeIndex(times)
    twice = moments.duplicated()
    grid = find_grid(moments[~twice], freq)
    if grid is None:
        raise _irregular(where, freq)
    if grid.missing > MOST_MADE_UP * len(grid.times):
        raise UserError(
            f"{where}: at steps of {freq}, {grid.missing:,} of {len(grid.times):,} rows "
            f"({grid.missing / len(grid.times):.0%}) would be made up; add what is missing, or use --data.freq "
            "STEP for another step"
        )
    places = np.full(len(times), -1)
    places[~twice] = grid.places
    for row in times.index[twice]:
        problems[row] = f"{times[row]} occurs twice; where clocks were put back, add UTC offsets"
    for row in times.index[(places < 0) & ~twice]:
        problems[row] = f"{times[row]} is off the step of {freq}"

    values = numbers.loc[times.index].to_numpy()
    whole = np.flatnonzero((places >= 0) & ~np.isnan(values).any(1))
    if may_trim and len(whole):
        for place in (*range(whole[0]), *range(whole[-1] + 1, len(times))):
            problems.setdefault(times.index[place], "a value is empty at an end of the series")
            places[place] = -1
    kept = places >= 0
    first, last = places[kept].min(), places[kept].max()
    rows = np.full((last - first + 1, values.shape[1]), np.nan)
    rows[places[kept] - first] = values[kept]
    return grid.times[first : last + 1], rows


def _fill_gaps(pieces: dict[str, tuple[Any, np.ndarray]], gaps: Gaps, where: object) -> tuple[np.ndarray, str]:
    """Return the rows of all series with what is missing interpolated, and a remark on it; or refuse to."""
    import pandas as pd

    values = np.concatenate([rows for _, rows in pieces.values()])
    empty = np.isnan(values)
    if not empty.any():
        return values, ""
    most = max(np.isnan(rows).mean(0).max() for _, rows in pieces.values())
    filled = [pd.DataFrame(rows).interpolate(limit_area="inside").to_numpy() for _, rows in pieces.values()]
    result = np.concatenate(filled)
    if gaps == "interpolate" and most <= MOST_MADE_UP and not np.isnan(result).any():
        return result, f", {empty.any(1).sum():,} rows with gaps interpolated ({empty.mean():.1%} of the values)"

    times = np.concatenate([times for times, _ in pieces.values()])
    shown = ", ".join(str(pd.Timestamp(time)) for time in times[empty.any(1)][:3])
    message = f"{where}: {empty.any(1).sum():,} of {len(values):,} rows are missing or lack a value ({shown}, ...)"
    if most > MOST_MADE_UP:
        raise UserError(
            f"{message}, {most:.0%} of a column, which is too much to make up; leave it out of data.targets"
        )
    if np.isnan(result).any():
        raise UserError(f"{message}, some at an end; fill them in, or use --data.bad_rows drop")
    raise UserError(f"{message}; add them, or use --data.gaps interpolate ({empty.mean():.1%} would be made up)")
