"""The step of a series, a pandas offset alias, and where times lie on the grid that it makes."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from litlab.errors import UserError

TOLERANCE = 0.1  # of a step: times so near to the grid are on it
_LARGEST = 20  # rows of a grid for each time; a larger one comes of a wrong time
_SEASONS = {"B": 5, "D": 7, "7D": 52, "MS": 12, "ME": 12, "3MS": 4, "3ME": 4}
_SAME = {"W": (7, "D"), "QS": (3, "MS"), "QE": (3, "ME"), "YS": (12, "MS"), "YE": (12, "ME")}


@dataclass(frozen=True)
class Grid:
    """Times at equal steps, and which of them some given times are nearest to.

    Args:
        freq: The step.
        times: From the first to the last of them that is met, a DatetimeIndex.
        places: For each given time its number among `times`; -1 where it is off the step, or another is there.
        error: How many of both are without the other, and how far the others are off, in seconds: less is better.
    """

    freq: str
    times: Any
    places: np.ndarray
    error: tuple[int, float]


def read_step(freq: Any) -> str:
    """Return an offset alias in the one form that is compared: days for weeks, months for quarters and years.

    Raises:
        UserError: It is no step.
    """
    from pandas.tseries.frequencies import to_offset

    try:
        offset: Any = to_offset(freq)
    except ValueError as error:
        raise UserError(f"data.freq: {freq!r} is no step; give one such as 15min, h, D, B, MS, QS or YS") from error
    if offset.rule_code == "h" and offset.n % 24 == 0:
        return read_step(f"{offset.n // 24}D")
    size, unit = _SAME.get(offset.rule_code.partition("-")[0], (0, ""))
    return f"{offset.n * size}{unit}" if size else offset.freqstr


def find_season(freq: str) -> int:
    """Return the rows of the season that is usual for a step: a day, a week of days, a year of weeks or months."""
    import pandas as pd

    day: Any = pd.date_range("2024-01-01", "2024-01-02", freq=freq)
    rows_of_a_day = len(day) - 1 if len(day) and day[-1] == pd.Timestamp("2024-01-02") else 1
    return _SEASONS.get(freq, rows_of_a_day)


def find_grid(times: Any, freq: str | None) -> Grid | None:
    """Find the grid that fits times best.

    Args:
        times: A DatetimeIndex, ascending, no two the same.
        freq: Its step; None: of those that are likely the one that leaves out and makes up the fewest rows.

    Returns:
        The grid; None where there is none that half of the times are on, or one time is far from all others.
    """
    import pandas as pd

    if freq is not None:
        return _lay_grid(times, freq)
    if len(times) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas 3 announces that it will return an offset
        inferred = pd.infer_freq(times) if len(times) > 2 else None
    grid = None if inferred is None else _lay_grid(times, read_step(inferred))
    if grid is not None and grid.error == (0, 0):
        return grid
    grids = [_lay_grid(times, guess) for guess in _guess_steps(times)]
    return min((grid for grid in grids if grid is not None), key=lambda grid: grid.error, default=None)


def _guess_steps(times: Any) -> list[str]:
    """Return calendar months, the usual difference, the middle one without its jitter, and business days."""
    import pandas as pd

    gaps = times.to_series().diff().dropna()
    usual, middle = gaps.mode()[0], gaps.median()
    months = round(usual / pd.Timedelta(days=30.44))
    rounded = [middle.round(unit) for unit in ("s", "min", "5min", "h", "D")]
    calendar = [f"{months}{unit}" for unit in ("MS", "ME") if months]
    guesses = [*calendar, *(step for step in (usual, *rounded) if step), "B"]
    return list(dict.fromkeys(read_step(guess) for guess in guesses))


def _lay_grid(times: Any, freq: str) -> Grid | None:
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    # Months may begin on any day: the grid keeps the distance of the first time from the offset before it.
    offset: Any = to_offset(freq)
    start = offset.rollback(times[0])
    if (times[-1] - start) / (start + offset - start) > _LARGEST * (len(times) + 1):
        return None
    shift = times[0] - start
    grid: Any = pd.date_range(start, times[-1] - shift + 2 * offset, freq=offset) + shift
    step = (grid[1:] - grid[:-1]).min()

    # Where most times jitter, the grid goes through their middle, at a round time if one is near enough.
    off = (times - grid[grid.get_indexer(times, method="nearest")]).to_series()
    if (off - off.median()).abs().median() > pd.Timedelta(0):
        grid += off.median()
        to_round = grid[0].round(step) - grid[0]
        grid += to_round if abs(to_round) <= TOLERANCE * step else pd.Timedelta(0)

    places = grid.get_indexer(times, method="nearest")
    off = abs(times - grid[places])
    fits = np.asarray(off <= TOLERANCE * step)
    fits &= ~pd.Series(places).where(fits).duplicated().to_numpy()
    if 2 * fits.sum() < len(times):
        return None
    first, last = places[fits].min(), places[fits].max()
    unmet = len(times) + last - first + 1 - 2 * int(fits.sum())
    far = float(off[fits].total_seconds().to_numpy().sum())
    return Grid(freq, grid[first : last + 1], np.where(fits, places - first, -1), (unmet, far))
