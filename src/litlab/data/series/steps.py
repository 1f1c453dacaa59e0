"""The step of a series, a pandas offset alias, and where times lie on the grid that it makes."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from litlab.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_TOLERANCE = 0.1  # of a step: times so near to the grid are on it
_LARGEST = 20  # rows of a grid for each time; a larger one comes of a wrong time
_SAME = {"W": (7, "D"), "QS": (3, "MS"), "QE": (3, "ME"), "YS": (12, "MS"), "YE": (12, "ME")}


@dataclass(frozen=True)
class Grid:
    """Times at equal steps, and which of them some given times are nearest to.

    Args:
        freq: The step.
        times: From the first to the last of them that is met.
        places: For each given time its number among `times`; -1 where it is off the step, or another is there.
        error: How many of both are without the other, and how far the others are off: less is better.
    """

    freq: str
    times: "pd.DatetimeIndex"
    places: np.ndarray
    error: tuple[int, float]

    @property
    def missing(self) -> int:
        """How many of its times are not met."""
        return len(self.times) - int((self.places >= 0).sum())


def read_step(freq: object) -> str:
    """Return a step in the one form that is compared: weeks as days, quarters and years as months.

    Raises:
        UserError: It is no offset alias of pandas.
    """
    from pandas.tseries.frequencies import to_offset

    try:
        offset = to_offset(freq)  # pyright: ignore[reportCallIssue, reportArgumentType]
    except ValueError as error:
        raise UserError(f"data.freq: {freq!r} is no step; give one such as 15min, h, D, B, MS, QS or YS") from error
    kind = offset.rule_code.partition("-")[0]
    size, unit = _SAME.get(kind, (1, ""))
    return f"{offset.n * size}{unit}" if unit else offset.freqstr


def find_season(freq: str) -> int:
    """Return the rows of the season that is usual for a step: a day, a week of days, a year of weeks or months."""
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    offset = to_offset(freq)
    kind = offset.rule_code.partition("-")[0]
    if kind == "B":
        return 5
    if kind in ("MS", "ME", "BMS", "BME"):
        return 12 // offset.n if 12 % offset.n == 0 else 1
    day = pd.Timestamp("2024-01-01")
    step, whole = day + offset - day, pd.Timedelta(days=1)
    if step < whole:
        return whole // step if whole % step == pd.Timedelta(0) else 1
    return {1: 7, 7: 52}.get(step / whole, 1)


def find_grid(times: "pd.DatetimeIndex", freq: str | None) -> Grid | None:
    """Find the grid that fits times best.

    Args:
        times: Ascending, no two the same.
        freq: Its step; None: the one that leaves out and makes up the fewest rows, of those that are likely.

    Returns:
        The grid; None where there is none that half of the times are on, or one time is far from all others.
    """
    import pandas as pd

    if freq is not None:
        return _lay_grid(times, freq)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas 3 announces that it will return an offset
        inferred = pd.infer_freq(times) if len(times) > 2 else None
    grids = [_lay_grid(times, read_step(inferred))] if inferred is not None else []
    if not grids or grids[0] is None or grids[0].error > (0, 0.0):
        grids += [_lay_grid(times, guess) for guess in _guess_steps(times)]
    return min((grid for grid in grids if grid is not None), key=lambda grid: grid.error, default=None)


def _guess_steps(times: "pd.DatetimeIndex") -> list[str]:
    """Return the usual difference, the middle one without its jitter, business days, and calendar months."""
    import pandas as pd

    gaps = times.to_series().diff().dropna()
    usual, middle = gaps.mode()[0], gaps.median()
    months = round(usual / pd.Timedelta(days=30.44))
    steps = [usual, *(middle.round(unit) for unit in ("s", "min", "5min", "h", "D"))]
    calendar = [read_step(f"{months}{unit}") for unit in ("MS", "ME") if months]
    return list(dict.fromkeys([*calendar, *(_name_step(step) for step in steps if step), "B"]))


def _name_step(step: "pd.Timedelta") -> str:
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    days = pd.Timedelta(days=1)
    return read_step(f"{step // days}D" if step % days == pd.Timedelta(0) else to_offset(step))


def _lay_grid(times: "pd.DatetimeIndex", freq: str) -> Grid | None:
    import pandas as pd
    from pandas.tseries.frequencies import to_offset

    # Months may begin on any day: the grid keeps the distance of the first time from the offset before it.
    offset = to_offset(freq)
    start = offset.rollback(times[0])
    if (times[-1] - start) / (start + offset - start) > _LARGEST * (len(times) + 1):
        return None
    shift = times[0] - start
    grid = pd.date_range(start, times[-1] - shift + 2 * offset, freq=offset) + shift
    tolerance = _TOLERANCE * (grid[1:] - grid[:-1]).min()

    # Where most times jitter, the grid goes through their middle, at a round time if one is near enough.
    off = times - grid[grid.get_indexer(times, method="nearest")]
    middle = off.to_series().median()
    if abs(off - middle).to_series().median() > pd.Timedelta(0):
        grid += middle
        nearest = grid[0].round(tolerance / _TOLERANCE)
        grid += nearest - grid[0] if abs(nearest - grid[0]) <= tolerance else pd.Timedelta(0)

    places = grid.get_indexer(times, method="nearest")
    off = abs(times - grid[places])
    fits = np.asarray(off <= tolerance)
    fits &= ~pd.Series(places).where(fits).duplicated().to_numpy()
    if 2 * fits.sum() < len(times):
        return None
    first, last = places[fits].min(), places[fits].max()
    unmet = len(times) + last - first + 1 - 2 * int(fits.sum())
    error = unmet, float(off[fits].total_seconds().to_numpy().sum())
    return Grid(freq, grid[first : last + 1], np.where(fits, places - first, -1), error)
