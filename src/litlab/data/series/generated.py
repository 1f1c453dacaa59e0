"""Hourly series made by arithmetic, for machines without data: no real process, but patterns that must be learned.

Periods that are not a whole number of days make yesterday a bad forecast; the noise keeps the best one from being
exact.
"""

from collections.abc import Sequence

import numpy as np

from litlab.data.frames import Frame

GENERATED_COLUMNS = ("sine", "sine_2", "sine_3", "sine_4")
_ROWS = 10_000


def generate_series(time_column: str, names: Sequence[str]) -> Frame:
    """Make a series of 10,000 hours, of noisy sines; every call makes the same.

    Args:
        time_column: Name for the column of the times.
        names: Names for the others. The first has a period of 62.8 hours, the second of half of that, then a third, ...
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({time_column: pd.date_range("2016-07-01", periods=_ROWS, freq="h")})
    for number, name in enumerate(names, start=1):
        frame[name] = np.sin(0.1 * number * frame.index) + 0.2 * rng.standard_normal(_ROWS)
    return frame
