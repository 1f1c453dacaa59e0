"""The time from one row of a series to the next; calendar months count as equal."""

from dataclasses import dataclass

import numpy as np

_DAY = 86_400
_UNITS = (("week", 7 * _DAY), ("day", _DAY), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Step:
    """The time from one row to the next: so many seconds, or so many calendar months.

    Args:
        seconds: Seconds, 0 where it is months.
        months: Months, 0 where it is seconds.
        at_end: Whether a month's row has its place counted from the end of the month, as in 01-31, 02-28, 03-31.
    """

    seconds: int = 0
    months: int = 0
    at_end: bool = False

    def __str__(self) -> str:
        """Such as "1 hour" or "3 months"."""
        count, unit = self.months, "month"
        if self.seconds:
            unit, size = next((unit, size) for unit, size in _UNITS if self.seconds % size == 0)
            count = self.seconds // size
        return f"{count} {unit}{'s' * (count != 1)}"

    @property
    def season(self) -> int:
        """Rows of the season that is usual for this step: a day, for daily rows a week, for longer ones a year."""
        if self.months:
            return 12 // self.months if 12 % self.months == 0 else 1
        if self.seconds < _DAY:
            return _DAY // self.seconds if _DAY % self.seconds == 0 else 1
        return {_DAY: 7, 7 * _DAY: 52}.get(self.seconds, 1)

    def positions(self, times: np.ndarray) -> np.ndarray:
        """Count the steps from the first time.

        Args:
            times: datetime64[s] of shape (row,), all of them `fitting`.

        Returns:
            int64 of shape (row,).
        """
        if self.seconds:
            return (times - times[0]).astype(np.int64) // self.seconds
        month, _ = _in_month(times, self.at_end)
        return (month - month[0]) // self.months

    def fitting(self, times: np.ndarray) -> np.ndarray:
        """Say which times can be reached from most of the others in whole steps.

        Args:
            times: datetime64[s] of shape (row,).

        Returns:
            bool of shape (row,).
        """
        if self.seconds:
            phase = times.astype(np.int64) % self.seconds
            return phase == _most_frequent(phase)[0]
        month, offset = _in_month(times, self.at_end)
        usual = offset == _most_frequent(offset)[0]
        phase = month % self.months
        return usual & (phase == _most_frequent(phase[usual])[0])

    def after(self, time: np.datetime64, count: int) -> np.ndarray:
        """Continue a series after its last time by so many times, datetime64[s] of shape (count,)."""
        steps = np.arange(1, count + 1)
        if self.seconds:
            return time + (steps * self.seconds).astype("timedelta64[s]")
        month, offset = _in_month(np.array([time]), self.at_end)
        months = (month + steps * self.months + self.at_end).astype("datetime64[M]")
        return months.astype("datetime64[s]") + offset.astype("timedelta64[s]")


def _in_month(times: np.ndarray, at_end: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the month, and the seconds since its start (or, negative, until its end), int64 (row,)."""
    month = times.astype("datetime64[M]").astype(np.int64)
    edge = (month + at_end).astype("datetime64[M]").astype("datetime64[s]")
    return month, (times - edge).astype(np.int64)


def _most_frequent(values: np.ndarray) -> tuple[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return int(found[counts.argmax()]), int(counts.max())


def find_step(times: np.ndarray) -> Step:
    """Find the step that most of the times have.

    Args:
        times: datetime64[s] of shape (row,), ascending, two or more.
    """
    seconds, _ = _most_frequent(np.diff(times).astype(np.int64))
    if seconds >= 28 * _DAY:
        (start, from_start), (_, from_end) = (_most_frequent(_in_month(times, end)[1]) for end in (False, True))
        # Where both hold, as for 07-31 and 08-31, a day that not all months have means the end of the month.
        at_end = from_end > from_start or (from_end == from_start and start >= 28 * _DAY)
        month, offset = _in_month(times, at_end)
        usual, count = _most_frequent(offset)
        if count > len(times) / 2:
            return Step(months=_most_frequent(np.diff(month[offset == usual]))[0], at_end=at_end)
    return Step(seconds=seconds)
