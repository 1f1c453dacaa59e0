"""A table becomes series at equal steps of time: bad rows and gaps are refused, or left out and
filled.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from lightning.pytorch.utilities import rank_zero_info
from pandas.tseries.frequencies import to_offset

from litlab.data.cells import count_far
from litlab.data.files import Cells, FileFormat, Frame, Policy, drop_bad_rows
from litlab.data.series.metadata import SeriesMetadata
from litlab.errors import UserError
from litlab.util.text import some

Gaps = Literal["error", "interpolate"]
_TOLERANCE = 0.1  # of a step: times so near to the grid are on it
# Share of the times of a series that may be off the grid, and of a column that may be made up
_MOST_WRONG = 0.1


@dataclass(frozen=True)
class Series:
    """One series or several at equal steps of time, one below the other, without gaps.

    Args:
        table: Targets, float64, and covariates; the index has the name of the series and the time
            of each row.
        made_up: The index of the rows in which a target is interpolated.
        metadata: What the columns are, the step, and which covariates are constant in each series.
    """

    table: Frame
    made_up: Any
    metadata: SeriesMetadata

    @property
    def times(self) -> Any:
        """Time of each row, a DatetimeIndex: in UTC, or without a zone what the clock on the wall
        said.
        """
        return self.table.index.get_level_values(1)


def read_series(
    raw: Frame,
    metadata: SeriesMetadata,
    where: str,
    *,
    form: FileFormat | None = None,
    gaps: Gaps = "error",
    bad_rows: Policy = "error",
    ahead: int = 0,
) -> Series:
    """Read series.

    A time that is nearer to the grid of equal steps than a tenth of a step is moved onto it, but
    not to another day; the rows may be in any order. Times with UTC offsets count in UTC, or as the
    clock on the wall where that shows the same hour in all rows.

    Args:
        raw: As of `read_cells`.
        metadata: What the columns are.
        where: What messages call the file.
        form: How its cells are written; None: as those of the training file.
        gaps: Whether missing rows and values are errors or interpolated linearly.
        bad_rows: Whether rows without a time, with text for a number, with a time that is there
            twice or is off the step are errors or left out.
        ahead: Rows to return beyond the last one of a series that has a target. There the targets
            are NaN, and the covariates as the file has them.

    Raises:
        UserError: A column is missing or holds no numbers, or the rows make no regular series, or
            are too few.
    """
    rows = metadata.read(raw, where, form, bad_rows)
    times = rows[metadata.time_column]
    names = (  # of the series of each row
        pd.Series("", rows.index)
        if metadata.series_column is None
        else rows[metadata.series_column]
    )

    # Covariates that never change within a series, as the size of a shop, need not be there for the
    # future. The training file decides which these are
    covariates, static = rows[metadata.covariate_columns], metadata.static
    if static is None:
        varies = covariates.groupby(names.to_numpy()).nunique(dropna=False).max() > 1
        static = list(covariates.columns[~varies]) if names.nunique() > 1 else []

    # A missing text is a value of its own, "": on the grid NA will stand for rows that are missing
    texts = covariates.select_dtypes("string").columns.difference(static)
    rows[texts] = rows[texts].fillna("")

    # Each series is on a grid of its own, all with the same step: that of the longest one
    columns = [*metadata.targets, *metadata.covariate_columns]
    by_series = dict(list(rows[columns].groupby(names, sort=False)))
    longest = max(by_series.values(), key=len)
    freq = metadata.freq or _find_step(times[longest.index], where)
    grids = {
        name: _lay_on_grid(its_rows, times[its_rows.index], freq, bad_rows, where, ahead, name)
        for name, its_rows in by_series.items()
    }
    table = pd.concat(grids)
    if static:
        of_series = table.groupby(level=0, sort=False)[static]
        table[static] = of_series.ffill().groupby(level=0, sort=False).bfill()

    # Behind the last target of a series is the future, of which nothing is made up
    is_past = _reach_back(table[metadata.targets].notna().any(axis=1))
    if not ahead and not is_past.all():
        rank_zero_info(
            f"{where}: rows behind the last one with a target are left out: {(~is_past).sum():,}"
        )
    made_up = table.index[table[metadata.targets].isna().any(axis=1)]
    numbers = table.select_dtypes("number")
    filled = _fill_gaps(numbers, is_past, gaps, where, ahead)
    table[numbers.columns] = filled

    # At the ends of a series there may be nothing to interpolate from: the future begins there
    is_whole = filled.notna().all(axis=1) & is_past
    is_future = ~_reach_back(is_whole)
    is_next = is_future & (is_future.groupby(level=0).cumsum() <= ahead)

    # What is too short is named
    sizes = is_whole.groupby(level=0, sort=False).sum()
    least = metadata.context_length + (0 if ahead else metadata.horizon)
    short = sizes[sizes < least]
    if len(short):
        counts = [f"{name or 'the series'} has {size:,}" for name, size in short.items()]
        summary = f"{where}: a series needs {least:,} rows with a target, and {some(counts)}"
        if len(short) == len(sizes):
            smaller = ", or a smaller --data.context_length or --data.horizon" * (not ahead)
            raise UserError(f"{summary}; give more{smaller}")
        rank_zero_info(f"warning: {summary}; what is too short is left out")
    table = table[is_whole | is_next].drop(index=short.index, level=0)
    return Series(table, made_up, replace(metadata, freq=freq, static=static))


def _reach_back(is_there: Cells) -> Cells:
    """Return which rows of each series come no later than the last one where `is_there` is true."""
    # From the end of each series to its beginning: once true, always true
    return is_there[::-1].groupby(level=0).cummax()[::-1].astype(bool)


def _find_step(times: Cells, where: str) -> str:
    """Return the step that most stretches of ten times have; where all jitter, the middle
    difference, rounded.
    """
    # The first 10,000 times are enough, and are quickly looked at
    index: Any = pd.DatetimeIndex(times).unique().sort_values()[:10_000]
    if len(index) < 2:
        raise UserError(f"{where}: one time makes no series; give more rows")
    # A gap spoils its own stretch only; three times at least, as pandas finds no step in fewer
    stretches = [index[start : start + 10] for start in range(0, len(index) - 2, 10)]
    # Pandas 3 announces that it will return an offset
    with warnings.catch_warnings(action="ignore"):
        steps: Any = pd.Series(map(pd.infer_freq, stretches), dtype=object)
        if steps.any():
            return steps.mode()[0]

        # On the same day of each month, or its last one: the step from month to month
        months = index.tz_localize(None).to_period("M")
        is_on_day = index.day == np.minimum(index.day.max(), index.days_in_month)
        start = index[0]
        if months.is_unique and is_on_day.all():
            start = months[0].to_timestamp()  # "MS" counts from the first day of a month
            step = f"{pd.Series(months.astype('int64')).diff().mode()[0]:.0f}MS"
        else:
            # Where a clock jitters by up to a 50th of the step: 59.8 s are a minute
            step = index.diff().median()
            for unit in ("D", "h", "min", "s"):
                if abs(step.round(unit) - step) < step / 50:
                    step = step.round(unit)
        return str(pd.infer_freq(pd.date_range(start, periods=3, freq=step)))


def _lay_on_grid(
    rows: Frame, times: Cells, freq: str, bad_rows: Policy, where: str, ahead: int, name: str
) -> Frame:
    """Return the rows of one series by the times of a grid, NaN where there is no row; and some
    more behind them.
    """
    # Twice as many times as there are: a wrong year is off this grid, and makes none of millions of
    # rows.
    grid = _make_grid(times, freq, 2 * len(times) + ahead)
    step = grid.diff().min()
    if step < pd.Timedelta("28D"):  # where times jitter, through the middle
        grid += (times - grid[grid.get_indexer(times, method="nearest")]).median()
    # For each row its number on the grid, -1 where it is off
    nearest = grid.get_indexer(times, method="nearest", tolerance=_TOLERANCE * step)
    positions = pd.Series(nearest, times.index)

    # Wrong is what is off the grid, or on a time that another row has. A tenth of a month is three
    # days, but a row is not moved to another day, except by 2.4 hours, around midnight
    wrong = (positions < 0) | positions.duplicated()
    is_far = (times - grid[positions]).abs() > _TOLERANCE * pd.Timedelta("1D")
    wrong |= is_far & (times.dt.normalize() != grid[positions].normalize())

    # Many wrong rows are no bad rows: the step is wrong, or two series are taken for one
    if wrong.mean() > _MOST_WRONG:
        is_copy, of = times.duplicated(), f" of {name!r}" if name else ""
        if is_copy.sum() > wrong.sum() / 2:
            apart = ", or set --data.series_column to what tells several series apart"
            raise UserError(
                f"{where}: {is_copy.mean():.0%} of the times{of} are there twice, the first in row "
                f"{is_copy.idxmax()}; write the whole time in one column{apart * (not ahead)}"
            )
        raise UserError(
            f"{where}: {wrong.mean():.0%} of the times{of} are off the step of {freq}, the first "
            f"in row {wrong.idxmax()}; {_list_ways('correct them', ahead, name)}"
        )

    # Few are, and may be left out. What then is missing between the first and last row is a gap
    problem = (
        f"is there twice or off the step of {freq}; where clocks were put back, add UTC offsets"
    )
    problems = {row: f"{time} {problem}" for row, time in times[wrong].items()}
    rows = drop_bad_rows(rows, problems, bad_rows, where)
    positions = positions[rows.index]
    rows = rows.set_axis(grid[positions])
    return rows.reindex(grid[positions.min() : positions.max() + 1 + ahead])


def _list_ways(first: str, ahead: int, name: str) -> str:
    """Return what to do about times that do not fit the step; in prediction it can't be set."""
    ways = ["set --data.freq"] + ["give series of other steps a file of their own"] * bool(name)
    return ", or ".join([first, *(ways if not ahead else [])])


def _make_grid(times: Cells, freq: str, count: int) -> Any:
    """Return so many times at equal steps, from the earliest one on."""
    try:
        first, step = times.min(), to_offset(freq)
    except ValueError:
        raise UserError(f"data.freq: {freq} is no step; use 15min, h, D, B, MS, ...") from None
    # Some steps of pandas begin at fixed points, as weeks on a Sunday: there the grid begins, and
    # is moved to the first time
    start = step.rollback(first)
    grid = pd.date_range(start, periods=count + 1, freq=freq)
    unit = step.rule_code.partition("-")[0]
    if unit[0] not in "MQY":
        return grid + (first - start)
    # Months have no common length: 30 January is followed by 29 February, and then by 30 March
    is_end = unit.endswith("E") and times.dt.is_month_end.all()
    day = 31 if is_end else times.dt.day.max()
    months = grid.tz_localize(None).to_period("M").to_timestamp().tz_localize(grid.tz)
    days = pd.to_timedelta(np.minimum(day, months.days_in_month) - 1, "D")
    return months + days + (first - first.normalize())


def _fill_gaps(numbers: Frame, is_past: Cells, gaps: Gaps, where: str, ahead: int) -> Frame:
    """Interpolate what is missing in the past of each series, and say how much; or refuse to."""
    # In the future nothing is filled: there the targets are what is to be forecast
    empty = numbers[is_past].isna()
    holes = empty.any(axis=1)
    if not holes.any():
        return numbers
    share = empty.groupby(level=0).mean().max(axis=None)  # of the worst column of the worst series
    name, time = holes.idxmax()
    summary = (
        f"{where}: no row, or no value, at {holes.sum():,} of {len(holes):,} times ({share:.1%} of "
        f"a column), the first at {time}{f' of {name!r}' if name else ''}"
    )
    if share > _MOST_WRONG:
        ways = _list_ways("fill it, or leave it out", ahead, name)
        raise UserError(f"{summary}; too much to make up: {ways}")
    if gaps == "error":
        raise UserError(f"{summary}; add them, or use --data.gaps interpolate")
    rank_zero_info(f"{summary}; they are interpolated (data.gaps), and count in no test")
    # Between two values, not beyond the first or last one
    filled = numbers.groupby(level=0, sort=False).transform(
        lambda column: column.interpolate(limit_area="inside")
    )
    return filled.where(is_past, numbers)


def read_last_rows(raw: Frame, metadata: SeriesMetadata, where: str, **options: Any) -> Series:
    """Read the rows that forecasts are made from.

    Args:
        raw: As of `read_cells`.
        metadata: Metadata of the checkpoint.
        where: What messages call the file.
        **options: form, gaps and bad_rows, as of `read_series`.

    Returns:
        The last ``context_length`` rows of each series, and ``horizon`` rows that follow, in which
        the targets are zero.

    Raises:
        UserError: It is wrong, too short, lacks covariates of the future, or is not like that of
            the training.
    """
    # Covariates that are known ahead, as prices, have to be there for all rows to forecast
    past, horizon = metadata.context_length, metadata.horizon
    series = read_series(raw, metadata, where, ahead=horizon, **options)
    of_series = series.table.groupby(level=0, sort=False)
    lacking = of_series[metadata.covariate_columns].tail(horizon).isna()
    if lacking.any(axis=None):
        name, time, column = lacking.stack().idxmax()
        raise UserError(
            f"{where}: {column!r} of {time} is missing{f' in {name}' if name else ''}; give it for "
            f"the {horizon} rows that follow the last one, in rows without {metadata.targets[0]!r}"
        )
    last = of_series.tail(past + horizon)
    for name, ends in metadata.ranges.items():
        count_far(last[name], ends, where)
    # A window of zeros in place of a future that nobody knows; NaN would spread in a network
    return replace(series, table=last.fillna(dict.fromkeys(metadata.targets, 0.0)))
