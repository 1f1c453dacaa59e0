"""What is learned from the training rows before any model: scale and the error of the seasonal naive forecast."""

from dataclasses import asdict
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.series.timeline import Series
from litlab.errors import UserError

_ODD, _IMPOSSIBLE = 100, 1e6  # distances from the median, in those that are usual
_SHARE = 100  # one row in so many may be far from the others


def measured(series: Series, rows: int, season: int | None, source: str) -> dict[str, Any]:
    """Measure what a checkpoint has to know of a series; values that set the scale by themselves are reported.

    Args:
        series: The series.
        rows: Number of training rows.
        season: Rows of a season; None: what is usual for the step, 1 where the training rows hold no two of these.
        source: What the series is, for messages.

    Returns:
        `targets`, `season`, `step`, `utc`, and what `fit_scaler` returns.

    Raises:
        UserError: The season is too long, or a column can't be scaled.
    """
    season = season or (series.step.season if 2 * series.step.season <= rows else 1)
    if season >= rows:
        raise UserError(f"data.season: {season} is too long for {rows} training rows; make it shorter")
    _report_outliers(series, rows, source)
    return {
        "targets": list(series.names),
        "season": season,
        "step": asdict(series.step),
        "utc": series.utc,
        **fit_scaler(series.values[:rows], series.names, season, source),
    }


def fit_scaler(train: np.ndarray, names: list[str], season: int, source: str) -> dict[str, list[float]]:
    """Measure training rows, float64 of shape (time, column), more of them than a season.

    Returns:
        For each column `mean`, `scale` (the standard deviation) and `naive_error`: mean absolute difference, scaled,
        to the row one season before, which is what MASE divides by (Hyndman & Koehler 2006).

    Raises:
        UserError: A column never changes, or by more or less than numbers can tell.
    """
    for number, name in enumerate(names):
        if train[:, number].min() == train[:, number].max():
            raise UserError(
                f"{source}: column {name!r} is {train[0, number]:g} in all training rows; leave it out of data.targets"
            )
    with np.errstate(over="ignore", under="ignore"):
        scale = train.std(0)
    for number, name in enumerate(names):
        if not 0 < scale[number] < np.inf:
            least, most = train[:, number].min(), train[:, number].max()
            raise UserError(
                f"{source}: column {name!r} runs from {least:g} to {most:g} in the training rows, which can't be "
                f"scaled; correct it or leave it out of data.targets"
            )
    naive_error = np.abs(train[season:] - train[:-season]).mean(0) / scale
    return {"mean": train.mean(0).tolist(), "scale": scale.tolist(), "naive_error": naive_error.tolist()}


def _report_outliers(series: Series, rows: int, name: str) -> None:
    """Warn of values in the training rows that set the scale of a column by themselves.

    Raises:
        UserError: A value is so far off that the others would all be scaled to the same number.
    """
    with np.errstate(over="ignore"):
        distance = np.abs(series.values[:rows] - np.median(series.values[:rows], axis=0))
    for number, column in enumerate(series.names):
        own = np.sort(distance[:, number])[: max(1, rows - max(1, rows // _SHARE))]
        place, most = int(distance[:, number].argmax()), distance[:, number].max()
        largest = own.max()
        usual = largest / most * np.sqrt(np.mean((own / largest) ** 2)) if largest > 0 else 0.0
        what = f"{name}: column {column!r} is {series.values[place, number]:g} {series.where(place)}"
        if 0 < usual < 1 / _IMPOSSIBLE:
            raise UserError(f"{what}, which makes all other training rows alike when it is scaled; correct or empty it")
        if usual < 1 / _ODD and most > 0:
            ratio = f"{1 / usual:,.0f} times as far from the median as is usual" if usual else ""
            far = ratio or "and nearly always the same"
            rank_zero_info(f"warning: {what}, {far}: the column's scale is that of a few values")
