"""Hourly series made by arithmetic, for machines without data: no real process, but patterns that must be learned.

Periods that are not a whole number of days make yesterday a bad forecast; the noise keeps the best one from being
exact.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

GENERATED_COLUMNS = ("sine", "tide", "delayed", "working", "drift", "levels", "bursts")
_ROWS = 10_000


def generate_series(time_column: str = "date", names: Sequence[str] = GENERATED_COLUMNS) -> "pd.DataFrame":
    """Make a series of 10,000 hours; every call makes the same.

    The columns: a noisy sine; a tide of two periods near half a day and a day; what follows the tide 5 hours later;
    a daily rhythm that rests at weekends; a rhythm of 23.6 hours on a slow drift; another on a level that jumps now
    and then; a cycle whose noise grows with its level.

    Args:
        time_column: Name for the column of the times.
        names: Names for the others; where there are more than seven, they come again.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    hours = np.arange(_ROWS)
    day, weekday = 2 * np.pi * hours / 24, (hours // 24 + 4) % 7  # 2016-07-01 was a Friday

    def noise(scale: float) -> np.ndarray:
        return scale * rng.standard_normal(_ROWS)

    def tide(at: np.ndarray) -> np.ndarray:
        return 2 * np.sin(2 * np.pi * at / 12.42) + 1.2 * np.sin(2 * np.pi * at / 25.82 + 1)

    walk = np.cumsum(noise(0.02))
    jumps = np.cumsum(noise(1.0) * (rng.random(_ROWS) < 1 / 1000))
    inner = 2 * np.pi * hours / 23.6  # a clock that gains on the sun
    rush = np.exp(2 * np.cos(day - 4)) * np.where(weekday < 5, 1.0, 0.3)
    columns = (
        np.sin(0.1 * hours) + noise(0.1),
        5 + tide(hours) + noise(0.4),
        1.5 * tide(hours - 5) - 2 + noise(0.5),
        10 + rush + noise(0.5),
        np.sin(inner) + 0.5 * np.sin(2 * inner + 0.5) + walk + noise(0.2),
        np.sin(inner + 2) + 0.3 * np.sin(day) + jumps + noise(0.2),
        20 + 4 * np.sin(2 * np.pi * hours / 37) + noise(1.0) * np.exp(0.6 * np.sin(2 * np.pi * hours / 37)),
    )
    times = pd.date_range("2016-07-01", periods=_ROWS, freq="h")
    values = {name: columns[number % len(columns)] for number, name in enumerate(names)}
    return pd.DataFrame({time_column: times, **values})
