"""Cells as times: what their digits and words stand for, and their UTC offsets."""

import re
import warnings
from functools import partial
from typing import Any, Literal

from litlab.data.cells import read_plain
from litlab.data.files import Cells, FileFormat
from litlab.errors import UserError

Zone = Literal["UTC", "wall"]

# The UTC offset behind a time of day, as in "10:30:00 PM +02:00": the first group is the time's
# end, the second the offset. A date alone has none: in 2024-01-31 the -31 is a day
_OFFSET = r"(:\d\d(?:\.\d+)?(?:\s*[AaPp]\.?[Mm]\.?)?)\s*(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)$"
# pandas would read "10:30" as today at that time, "now" as the time at which it reads, and 2010.55
# as 1 January 2010. But 2010.05, a month of a year, is a date
NO_DATE = r"\d\d?:|\d{4}\.(?!(?:0[1-9]|1[0-2])$)\d+$|(?i:now|today)$"
# 20-01-02, perhaps of the year 2020 and perhaps of 2002: either end could be a day
_SHORT_YEAR = r"([0-2]?\d|3[01])\D([0-2]?\d|3[01])\D([0-2]?\d|3[01])(?!\d)"
# Dates without signs between their parts, by their number of digits, from an hour on; pandas reads
# those of a day. As seconds or milliseconds since 1970 they would be of other years
_COMPACT = {10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
# Other numbers that stand for times: their digits, unit and origin
_CLOCKS = (
    # From 1973 on: fewer digits may be anything
    (r"\d{9,10}(\.\d+)?", "s", "unix"),
    (r"\d{12,13}", "ms", "unix"),
    (r"\d{15,16}", "us", "unix"),
    (r"\d{18,19}", "ns", "unix"),
    (r"[2-7]\d{4}(\.\d+)?", "D", "1899-12-30"),  # of a spreadsheet, 1954 to 2119
)


def read_times(
    cells: Cells, form: FileFormat, where: str, zone: Zone | Literal["any"] | None = "any"
) -> tuple[Cells, Zone | None]:
    """Read cells as times: any form of ISO 8601, dates whose parts can't be confused, seconds or
    fractions of them since 1970, the days of a spreadsheet, or years with months as fractions.

    Args:
        cells: Texts, numbers or times.
        form: Its `time_format` says how they are written.
        where: What messages call the file.
        zone: As of `Column`, as the training file has it; "any": this is the training file.

    Returns:
        datetime64, NaT where there is no time; and their zone. Times with UTC offsets are in UTC,
        except where the clock on the wall shows the same time of day in all rows, as at midnight:
        then they are as it says, since days are at equal steps only there.

    Raises:
        UserError: Day and month could be either way round, or there are UTC offsets here and none
            in training, or the other way round.
    """
    import pandas as pd

    # Numbers, as 1700000000, have no zone. The user's format comes first, as 2024013112 may be the
    # hour 12 of a day
    texts = read_plain(cells, form)
    numbers = _read_clock_numbers(texts)
    if numbers is not None and not _fits(texts, form.time_format):
        return numbers, None

    # All others are a clock's time and perhaps an offset. One file with and one without offsets
    # can't be compared; days as the wall's clock says may be written either way
    clock = texts.str.replace(_OFFSET, r"\1", regex=True)
    has_offset = clock.ne(texts).fillna(False).astype(bool)
    if zone != "any" and has_offset.any() != (zone is not None) and zone != "wall":
        these, those = ("no UTC offsets", "some") if zone else ("UTC offsets", "none")
        raise UserError(
            f"{where}: the times in column {cells.name!r} have {these}, and those of the training "
            f"have {those}; write them alike"
        )

    # The user's format may have the offset, too, which is cut off already
    time_format = form.time_format and re.sub(r"\s*%[zZ]$", "", form.time_format)
    local = _parse_times(clock, time_format, where)
    if not has_offset.any():
        return local, None
    # Midnight in Berlin is at 22:00 or 23:00 in UTC: the steps between days would differ there
    if zone == "wall" or (zone == "any" and local.dt.time.nunique() == 1):
        return local.where(has_offset), "wall"

    # Offsets may differ from row to row, so each time is written in ISO 8601 with its own; a time
    # without one becomes NaT, a bad row
    offset = texts.where(has_offset).str.extract(_OFFSET)[1]
    offset = offset.str.replace("Z|UTC|GMT", "+00:00", regex=True)
    written = local.dt.strftime("%Y-%m-%dT%H:%M:%S.%f") + offset
    return pd.to_datetime(written, format="ISO8601", errors="coerce", utc=True), "UTC"


def _read_clock_numbers(texts: Cells) -> Cells | None:
    """Return times that are written as numbers; None where they are none."""
    import pandas as pd

    # What most cells are counts: one of another kind is a bad row
    present = texts.dropna()
    for digits, time_format in _COMPACT.items():
        dates = present[present.str.fullmatch(rf"(19|20)\d{{{digits - 2}}}")]
        times: Any = pd.to_datetime(dates, format=time_format, errors="coerce")
        if times.notna().sum() > len(present) / 2:
            return times.reindex(texts.index)
    for pattern, unit, origin in _CLOCKS:
        numbers: Any = pd.to_numeric(present[present.str.fullmatch(pattern)])
        if len(numbers) > len(present) / 2:
            # As fractions of a day, 10:30 is a few nanoseconds off
            times = pd.to_datetime(numbers, unit=unit, origin=origin).dt.round("ms")
            return times.reindex(texts.index)
    # Years with months as fractions: 1949.5 is July, 1949.083 February
    if present.str.fullmatch(r"[12]\d{3}(\.\d+)?").all() and "." in "".join(present):
        years: Any = pd.to_numeric(present)
        months = 12 * (years - 1970)
        # 1949.08 is 0.04 months before February; other fractions are numbers of another kind
        if months.sub(months.round()).abs().max() < 0.045:
            dates = months.round().to_numpy("int64").astype("datetime64[M]").astype("datetime64[s]")
            return pd.Series(dates, present.index).reindex(texts.index)
    return None


def _fits(texts: Cells, time_format: str | None) -> bool:
    """Return whether a format is set, and all cells that are there are written like that."""
    return bool(time_format) and _parse_format(texts, time_format).notna().equals(texts.notna())


def _parse_times(texts: Cells, time_format: str | None, where: str) -> Cells:
    import pandas as pd

    if time_format:
        return _parse_format(texts, time_format)
    # ISO 8601 can be read in one way only
    texts = texts.mask(texts.str.match(NO_DATE))
    times = pd.to_datetime(texts, format="ISO8601", errors="coerce")
    # All others are read twice: 01/02/2024 is unclear, 31/01/2024 is not, and a year in front says
    # that the month is next
    others = texts[times.isna()]
    parse: Any = partial(pd.to_datetime, others, format="mixed", errors="coerce")
    with warnings.catch_warnings(action="ignore"):  # that each is parsed by itself
        day_first, month_first = parse(dayfirst=True), parse(dayfirst=False)
    is_unclear = day_first.notna() & (day_first != month_first) & ~others.str.match(r"\d{4}\D")
    is_short = day_first.notna() & others.str.match(_SHORT_YEAR)
    unclear = others[is_unclear | is_short]
    if len(unclear):
        first = "day, month or year" if is_short.any() else "day or month"
        raise UserError(
            f"{where}: {unclear.iloc[0]!r} in column {texts.name!r} could be {first} first; "
            "set --data.time_format, such as '%d/%m/%Y' or '%y-%m-%d %H:%M'"
        )
    times = times.fillna(month_first)
    # "5 Jan" has no year: pandas takes it for one of the year 1
    return times.where(times.dt.year >= 1000)


def _parse_format(texts: Cells, time_format: str) -> Cells:
    import pandas as pd

    return pd.to_datetime(texts, format=time_format, errors="coerce")
