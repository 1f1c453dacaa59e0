"""Forecasting: the last rows of a new file, and the columns of what follows them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from litlab.data.frames import FileFormat, Policy, Source
from litlab.data.series.regular import Gaps, Series, read_series
from litlab.errors import UserError


def read_last_rows(
    source: Source,
    known: Mapping[str, Any],
    form: FileFormat | None = None,
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
    import pandas as pd

    series = read_series(
        source, known["time_column"], known["targets"], known["series_column"], form=form, freq=known["freq"],
        utc=known["utc"], gaps=gaps, bad_rows=bad_rows, setting=setting,
    )  # fmt: skip
    least, horizon, ends = known["context_length"], known["horizon"], np.array(series.ends)
    sizes = ends - series.begins
    if sizes.min() < least:
        name = f"series {series.series[sizes.argmin()]!r}: " if len(sizes) > 1 else ""
        raise UserError(f"{setting}: {name}{sizes.min()} rows, the model forecasts from {least}; give that many")
    rows = ends[:, None] + np.arange(-least, horizon)
    values = series.values[np.minimum(rows, ends[:, None] - 1).flatten()]
    times = []
    for end in series.ends:
        times += [series.times[end - least : end], continue_times(series.times[end - 1], series.freq, horizon)]
    whole = pd.DatetimeIndex(np.concatenate(times))
    new_ends = (np.arange(1, len(ends) + 1) * (least + horizon)).tolist()
    return replace(series, times=whole, values=values, ends=new_ends)


def continue_times(last: Any, freq: str, count: int) -> Any:
    """Return so many times at equal steps after one."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    # Months that begin on another day than the first keep it.
    offset = to_offset(freq)
    start = offset.rollback(last)
    return pd.date_range(start, periods=count + 1, freq=offset)[1:] + (last - start)


def write_times(times: Any, freq: str, utc: bool) -> list[str]:
    """Return times as files of predictions have them: dates where all rows are midnights, +00:00 where they are UTC."""
    following = continue_times(times[-1], freq, 1)
    is_daily = all((part == part.normalize()).all() for part in (times, following))
    if is_daily and not utc:
        return times.strftime("%Y-%m-%d").tolist()
    return [str(time) for time in (times.tz_localize("UTC") if utc else times)]


def name_columns(targets: list[str], others: Iterable[str]) -> list[str]:
    """Return the columns of a forecast: for each target its forecast, lower and upper bound.

    Bounds end in ``_lower`` and ``_upper``, with more underscores where a column has such a name itself.
    """
    ends = ["_lower", "_upper"]
    while {name + end for name in targets for end in ends} & {*others, *targets}:
        ends = [f"_{end}" for end in ends]
    return [name + end for name in targets for end in ("", *ends)]
