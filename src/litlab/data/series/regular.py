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
    keys = {time_column: "time_column"} | ({series_column: "series_column"} if series_column else {})
    remedy = "set --data.{}" if setting == "data.path" else "the model needs it"
    needed = dict.fromkeys(targets or [], "targets") | keys
    check_columns(frame, where, {name: remedy.format(key) for name, key in needed.items()})

    # Rows without a number, a series or a time.
    problems: dict[Any, str] = {}
    columns = targets or [name for name in frame.columns if name not in keys]
    numbers = _read_numbers(frame[columns], form, where, problems, is_chosen=targets is not None)
    series: Any = frame[series_column].astype("string") if series_column else pd.Series("", frame.index, dtype="string")
    problems |= dict.fromkeys(series.index[series.isna()], f"column {series_column!r} is empty")
    universal: Any
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
    fits = {}
    for is_utc, times in clocks.items():
        grid = find_grid(pd.DatetimeIndex(times[longest].drop_duplicates().sort_values()), freq)
        if grid is not None and utc in (None, is_utc):
            fits[is_utc] = grid
    if not fits:
        raise _irregular(where, freq)
    is_utc = min(fits, key=lambda key: fits[key].error)
    step = fits[is_utc].freq

    # Each series gets the grid of its own times.
    pieces = {}
    for name, times in clocks[is_utc][good].groupby(series[good], sort=False):
        what = f"{where}, series {name!r}" if name else where
        pieces[str(name)] = _place_rows(numbers, times.sort_values(kind="stable"), step, problems, what)
    drop_bad_rows(frame, dict(sorted(problems.items())), bad_rows, where)
    remarks = _fill_gaps(pieces, gaps, where) + (f", {len(problems):,} rows dropped" if problems else "")
    times, values = (np.concatenate(parts) for parts in zip(*pieces.values(), strict=True))
    ends = np.cumsum([len(times) for times, _ in pieces.values()]).tolist()
    return Series(pd.DatetimeIndex(times), values, list(numbers.columns), step, is_utc, list(pieces), ends, remarks)


def _read_numbers(
    frame: Any, form: FileFormat, where: object, problems: dict[Any, str], *, is_chosen: bool
) -> "pd.DataFrame":
    """Return the columns that hold numbers, float64, and note the rows with something else in them."""
    import pandas as pd

    wrong: Any
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


def _refuse_interleaved(rows: Any, where: object) -> None:
    """Refuse rows of which many have the time of another one: they are several series."""
    share = rows.duplicated().mean()
    if share > _MOST_TWICE:
        raise UserError(
            f"{where}: {share:.0%} of the rows have the time of another row, as where there are several series; give "
            "one alone, or use --data.series_column COLUMN"
        )


def _irregular(where: object, freq: str | None) -> UserError:
    step = "" if freq is None else f" of {freq}"
    return UserError(
        f"{where}: its times are too few, most are not at equal steps{step}, or one is far from all others; correct or "
        "resample them, or use --data.freq STEP"
    )


def _place_rows(
    numbers: Any, times: "pd.Series", freq: str, problems: dict[Any, str], where: str
) -> tuple[Any, np.ndarray]:
    """Put the rows of one series on the grid of its times, and note those that have no place there.

    Args:
        numbers: The columns of all rows.
        times: Those of the series by its rows, ascending.
        freq: The step.
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
    places = np.full(len(times), -1)
    places[~twice] = grid.places
    for row in times.index[twice]:
        problems[row] = f"{times[row]} occurs twice; where clocks were put back, add UTC offsets"
    for row in times.index[(places < 0) & ~twice]:
        problems[row] = f"{times[row]} is off the step of {freq}"

    rows = np.full((len(grid.times), len(numbers.columns)), np.nan)
    rows[places[places >= 0]] = numbers.loc[times.index[places >= 0]]
    return grid.times, rows


def _fill_gaps(pieces: dict[str, tuple[Any, np.ndarray]], gaps: Gaps, where: object) -> str:
    """Interpolate what is missing in the rows of each series, and say how much; or refuse to."""
    import pandas as pd

    empty = {name: np.isnan(rows) for name, (_, rows) in pieces.items()}
    count = sum(part.any(1).sum() for part in empty.values())
    if not count:
        return ""
    total = sum(map(len, empty.values()))
    first = next(times[empty[name].any(1)][0] for name, (times, _) in pieces.items() if empty[name].any())
    share = sum(part.sum() for part in empty.values()) / sum(part.size for part in empty.values())
    most = max(part.mean(0).max() for part in empty.values())
    message = f"{where}: {count:,} of {total:,} rows are missing or lack a value, the first at {first}"
    if most > MOST_MADE_UP:
        raise UserError(
            f"{message}; {most:.0%} of a column is too much to make up: fill it, leave it out, or use --data.freq STEP"
        )
    if gaps == "error":
        raise UserError(f"{message}; add them, or use --data.gaps interpolate ({share:.1%} would be made up)")
    for name, (times, rows) in pieces.items():
        filled = pd.DataFrame(rows).interpolate(limit_area="inside").to_numpy()
        whole = ~np.isnan(filled).any(1)  # but for rows at the ends, where there is nothing to interpolate from
        pieces[name] = times[whole], filled[whole]
    return f", {count:,} rows with gaps interpolated ({share:.1%} of the values)"
