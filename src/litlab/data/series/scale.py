"""What is learned from the training rows before any model: scale and the error of the seasonal naive forecast."""

from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.series.regular import Series
from litlab.data.series.steps import find_season
from litlab.errors import UserError

_LARGEST = 1e36  # of a mean or deviation, which are float32 in places
_FARTHEST = 1e9  # scaled; errors are squared in float32
_ODD = 100  # distances from the median, in that which one row in a hundred exceeds


def measure(series: Series, bounds: np.ndarray, season: int | None, where: str) -> dict[str, Any]:
    """Measure the training rows of all series together.

    Args:
        series: The series.
        bounds: As of `find_bounds`.
        season: Rows of a season; None: what is usual for the step, 1 where a series has no two of these in training.
        where: What the series is, for messages.

    Returns:
        ``season``; and for each column ``mean``, ``scale`` (the standard deviation) and ``naive_error``: mean absolute
        difference, scaled, to the row one season before, which MASE divides by (Hyndman & Koehler 2006).

    Raises:
        UserError: The season is too long, or a column never changes, or by more or less than numbers can tell.
    """
    parts = [series.values[begin:end] for begin, end in bounds[:, :2]]
    least = min(map(len, parts))
    usual = find_season(series.freq)
    season = season or (usual if 2 * usual <= least else 1)
    if season >= least:
        raise UserError(f"data.season: {season} is too long for {least} training rows; make it shorter")

    train = np.concatenate(parts)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        mean, scale = train.mean(0), train.std(0)
    for number, name in enumerate(series.names):
        low, high = train[:, number].min(), train[:, number].max()
        if low == high or not (1 / _LARGEST < scale[number] < _LARGEST and abs(mean[number]) < _LARGEST):
            raise UserError(
                f"{where}: column {name!r} runs from {low:g} to {high:g} in the training rows, which can't be scaled; "
                "correct it, or leave it out of data.targets"
            )
    distance = abs(train - np.median(train, axis=0))
    odd = np.flatnonzero(distance.max(0) > _ODD * np.quantile(distance, 0.99, axis=0))
    if len(odd):
        rank_zero_info(f"warning: {where}: few values far from all others set the scale of {series.names[odd[0]]!r}")
    naive = np.concatenate([abs(part[season:] - part[:-season]) for part in parts]).mean(0) / scale
    return {"season": season, "mean": mean.tolist(), "scale": scale.tolist(), "naive_error": naive.tolist()}


def check_range(scaled: np.ndarray, series: Series) -> None:
    """Refuse scaled values, float32 of shape (row, column), that are too far from the training rows for float32.

    Raises:
        UserError: There is one.
    """
    row, column = map(int, np.unravel_index(np.argmax(abs(scaled)), scaled.shape))
    if not abs(scaled[row, column]) < _FARTHEST:
        raise UserError(
            f"data: column {series.names[column]!r} is {series.values[row, column]:g} {series.name_row(row)}, far "
            "outside the range of the training rows; correct it"
        )
