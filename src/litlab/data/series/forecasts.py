"""Forecasting: the last rows of a new file, and the columns of what follows them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litlab.data.frames import FileFormat, Policy, Source
from litlab.data.series.regular import Gaps, Series, read_series
from litlab.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_NEEDED = "the model needs it"


def read_last_rows(
    source: Source,
    known: Mapping[str, Any],
    form: FileFormat = FileFormat(),
    gaps: Gaps = "error",
    bad_rows: Policy = "error",
    setting: str = "--input",
) -> Series:
    """Read the rows that forecasts are made from; columns that the training did not have are ignored.

    Args:
        source: The file, or what was sent.
        known: Fields of the checkpoint's metadata by their names.
        form: How its cells are written.
        gaps: Whether missing rows and values are errors or interpolated.
        bad_rows: Whether bad rows are errors or left out.
        setting: Where the file's name comes from, for messages.

    Returns:
        The last ``context_length`` rows of each series, and below them ``horizon`` rows that repeat the last one, with
        the times that follow.

    Raises:
        UserError: It is missing, wrong, too short, or not like that of the training.
    """
    names = known["time_column"], known["targets"], known.get("series_column")
    series = read_series(
        source, *names, form=form, freq=known["freq"], utc=known["utc"], gaps=gaps, bad_rows=bad_rows,
        setting=setting, remedies=(_NEEDED,) * 3,
    )  # fmt: skip
    least, horizon = known["context_length"], known["horizon"]
    times, values = [], []
    for name, begin, end in zip(series.series, series.begins, series.ends, strict=True):
        if end - begin < least:
            what = f"series {name!r} of {source}" if name else setting if isinstance(source, bytes) else source
            raise UserError(f"{what}: {end - begin} rows, and the model forecasts from {least}; give at least that many")
        times += [series.times[end - least : end], continue_times(series.times[end - 1], series.freq, horizon)]
        values.append(np.pad(series.values[end - least : end], ((0, horizon), (0, 0)), mode="edge"))
    ends = [(number + 1) * (least + horizon) for number in range(len(values))]
    return replace(series, times=times[0].append(times[1:]), values=np.concatenate(values), ends=ends)


def continue_times(last: "pd.Timestamp", freq: str, count: int) -> "pd.DatetimeIndex":
    """Return so many times at equal steps after one."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    # Months that begin on another day than the first keep it.
    offset = to_offset(freq)
    start = offset.rollback(last)
    return pd.date_range(start, periods=count + 1, freq=offset)[1:] + (last - start)


def write_times(times: "pd.DatetimeIndex", freq: str, utc: bool) -> list[str]:
    """Return times as files of predictions have them: dates where all rows are midnights, +00:00 where they are UTC."""
    following = continue_times(times[-1], freq, 1)
    is_daily = all((part == part.normalize()).all() for part in (times, following))
    if is_daily and not utc:
        return times.strftime("%Y-%m-%d").tolist()
    return [str(time) for time in (times.tz_localize("UTC") if utc else times)]


def name_columns(targets: list[str], others: list[str]) -> list[tuple[str, str, str]]:
    """Return the columns of each target's forecast, lower and upper bound.

    Bounds end in ``_lower`` and ``_upper``, with more underscores where a column has such a name itself.
    """
    lower, upper = "_lower", "_upper"
    while {name + end for name in targets for end in (lower, upper)} & {*others, *targets}:
        lower, upper = f"_{lower}", f"_{upper}"
    return [(name, name + lower, name + upper) for name in targets]
