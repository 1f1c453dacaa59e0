"""Hourly series made by arithmetic, for machines without data: no real process, but patterns that must be learned.

Periods that are not a whole number of days make yesterday a bad forecast; the noise keeps the best one from being
exact.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

GENERATED_COLUMNS = ("sine", "tide", "working", "drift")
_ROWS = 10_000


def generate_series(time_column: str = "date", names: Sequence[str] = GENERATED_COLUMNS) -> "pd.DataFrame":
    """Make a series of 10,000 hours; every call makes the same.

    The columns: a noisy sine; a tide of two periods near half a day and a day; a daily rhythm that rests at weekends; a
    rhythm of 23.6 hours on a slow drift.

    Args:
        time_column: Name for the column of the times.
        names: Names for the others; where there are more than four, they come again with other noise.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    times = pd.date_range("2016-07-01", periods=_ROWS, freq="h")
    hours = np.arange(_ROWS)
    turns = 2 * np.pi * hours
    patterns = (
        np.sin(0.1 * hours),
        2 * np.sin(turns / 12.42) + np.sin(turns / 25.82),
        np.exp(2 * np.cos(turns / 24)) * np.where(times.day_of_week < 5, 1.0, 0.3),
        np.sin(turns / 23.6) + np.cumsum(0.02 * rng.standard_normal(_ROWS)),
    )
    columns = {
        name: patterns[number % len(patterns)] + 0.2 * rng.standard_normal(_ROWS) for number, name in enumerate(names)
    }
    return pd.DataFrame({time_column: times, **columns})
