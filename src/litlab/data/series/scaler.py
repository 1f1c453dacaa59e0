"""What is learned from the training rows before any model: scale and the error of the seasonal naive forecast."""

from dataclasses import asdict
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.series.outliers import check_outliers
from litlab.data.series.timeline import Series
from litlab.errors import UserError


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
    for warning in check_outliers(series, rows, source):
        rank_zero_info(warning)
    return {
        "targets": list(series.names),
        "season": season,
        "step": asdict(series.step),
        "utc": series.utc,
        **fit_scaler(series.values[:rows], series.names, season, source),
    }


def fit_scaler(train: np.ndarray, names: list[str], season: int, source: str) -> dict[str, list[float]]:
    """Measure the training rows.

    Args:
        train: float64 of shape (time, column), more rows than a season.
        names: Names of the columns.
        season: Rows of a season.
        source: What the series is, for the error message.

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
