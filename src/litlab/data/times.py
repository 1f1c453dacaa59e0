"""Times as people write them, in any form of ISO 8601."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from litlab.data.bad_rows import BadRows
from litlab.data.labels import shortened

_TIME = "write it like 2024-01-31 13:00:00"


def parse_time(text: str) -> tuple[datetime, bool]:
    """Read a time in any form of ISO 8601 that `datetime.fromisoformat` knows.

    Returns:
        The time, in UTC where it had an offset, and whether it had one.

    Raises:
        ValueError: It is not such a time, or finer than a second.
        OverflowError: It is before the year 1 in UTC.
    """
    text = text.strip()
    if text.isdigit() and len(text) != 8:  # seconds since 1970 can pass for a time of the year 1704
        raise ValueError("a number")
    time = datetime.fromisoformat(text)
    if time.microsecond:
        raise ValueError("times finer than a second are not supported")
    return (time, False) if time.tzinfo is None else (time.astimezone(UTC).replace(tzinfo=None), True)


def read_times(column: str, lines: list[int], texts: Sequence[str], bad: BadRows) -> tuple[np.ndarray, bool]:
    """Read a column of times.

    Args:
        column: Its name.
        lines: Line of the file on which each row begins.
        texts: Its cells.
        bad: Gets the rows without a time.

    Returns:
        datetime64[s] of shape (row,), NaT where there is none, and whether they are UTC.
    """
    times = np.full(len(texts), np.datetime64("NaT", "s"))
    aware: list[bool | None] = [None] * len(texts)
    for place, text in enumerate(texts):
        try:
            time, aware[place] = parse_time(text)
            times[place] = time
        except (ValueError, OverflowError) as error:
            bad.add(
                lines[place], f"column {shortened(column)} is {shortened(text)}, not a time{_why_no_time(text, error)}"
            )
    utc = aware.count(True) > aware.count(False) or (aware.count(True) == aware.count(False) and aware[0] is True)
    for place, has in enumerate(aware):
        if has is not None and has != utc:
            has_one, others = ("a", "most rows have none") if has else ("no", "most rows have one")
            bad.add(
                lines[place],
                f"column {shortened(column)} is {shortened(texts[place])}, with {has_one} UTC offset: {others}",
            )
    return times, utc


def _why_no_time(text: str, error: Exception) -> str:
    if "finer" in str(error):
        return f" ({error})"
    day_month = re.fullmatch(r"(\d{1,2})[/.-](\d{1,2})[/.-]\d{2,4}\b.*", text.strip())
    unclear = day_month and int(day_month[1]) <= 12 and int(day_month[2]) <= 12
    return f", as day and month could be either way round: {_TIME}" if unclear else f": {_TIME}"
