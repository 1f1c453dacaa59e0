"""What is known without training by gradients: scales, and forecasts that a network has to beat."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.series.regular import Series, find_season
from litlab.errors import UserError

_LARGEST = 1e36  # of a number: scales are float32 in places
# Penalties that are tried, relative to the mean eigenvalue of the windows' second moments: a decade in two steps.
_PENALTIES = [10 ** (k / 2) for k in range(-12, 5)]
_WITHOUT_VALIDATION = 1e-2


def measure(series: Series, bounds: np.ndarray, season: int | None, where: str) -> dict[str, Any]:
    """Measure the training rows of all series together.

    Args:
        series: The series.
        bounds: As of `find_bounds`.
        season: Rows of a season; None: what is usual for the step, 1 where no series has two of these in training.
        where: What the series is, for messages.

    Returns:
        ``season``; and for each column ``mean``, ``scale`` (the standard deviation) and ``naive_error``: mean absolute
        difference, scaled, to the row one season before, which MASE divides by (Hyndman & Koehler 2006).

    Raises:
        UserError: The season is too long, or a column never changes, or its numbers are too large or too small.
    """
    values = series.values
    parts = [values[begin:end] for begin, end in bounds[:, :2]]
    longest = max(map(len, parts))
    usual = find_season(series.freq)
    season = season or (usual if 2 * usual <= longest else 1)
    if season >= longest:
        raise UserError(f"data.season: {season} is too long for {longest} training rows; make it shorter")

    train = np.concatenate(parts)
    low, high = train.min(0), train.max(0)
    wrong = (high - low < 1 / _LARGEST) | (np.maximum(high, -low) > _LARGEST)
    if wrong.any():
        name = series.table.columns[wrong][0]
        raise UserError(
            f"{where}: column {name!r} runs from {low[wrong][0]:g} to {high[wrong][0]:g} in the training rows, which "
            "can't be scaled; correct it, or leave it out of data.targets"
        )
    mean, scale = train.mean(0), train.std(0)
    naive = np.concatenate([abs(part[season:] - part[:-season]) for part in parts]).mean(0) / scale
    return {"season": season, "mean": mean.tolist(), "scale": scale.tolist(), "naive_error": naive.tolist()}


def seasonal_naive(past: Tensor, horizon: int, season: int) -> Tensor:
    """Forecast (batch, horizon, channel): the last season, which the past holds, comes again and again."""
    row = past.shape[1] - season + torch.arange(horizon, device=past.device) % season
    return past.index_select(1, row)


def linear_forecast(past: Tensor, weight: Tensor) -> Tensor:
    """Forecast each channel by one linear map of its last rows.

    Args:
        past: Shape (batch, context_length, channel).
        weight: The map, (horizon, rows), from at most `context_length` rows.

    Returns:
        The forecast, (batch, horizon, channel).
    """
    return weight.to(past) @ past[:, past.shape[1] - weight.shape[1] :]


def fit_ridge(train: Sequence[Tensor], val: Sequence[Tensor], context_length: int, horizon: int) -> Tensor:
    """Fit the linear map from window to forecast that ridge regression gives (Hoerl & Kennard 1970).

    Each window is taken relative to the mean of its past, x - mean(x) to y - mean(x), and all channels are pooled; the
    result acts on windows as they are: W (I - 11'/n) + 11'/n. The penalty is the one with the least squared error on
    the validation windows; without them it is 0.01 times the mean eigenvalue.

    Nothing is computed per window: neighbouring windows share all but one of their products, so the normal equations
    and the errors of all penalties follow from running sums, in float64.

    Args:
        train: Training rows of each series, (time, channel); those shorter than a window don't count.
        val: Validation rows of each series together with the `context_length` rows before them, likewise.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.

    Returns:
        float32 (horizon, context_length), on the CPU; its rows sum to 1.
    """
    train, val = ([rows for rows in parts if len(rows) >= context_length + horizon] for parts in (train, val))
    products = _products(train, context_length + horizon)
    gram, cross = _centred(products, context_length)
    eigenvalues, basis = torch.linalg.eigh(gram)
    eigenvalues = eigenvalues.clamp_min(0)
    cross = basis.T @ cross
    unit = eigenvalues.mean().clamp_min(1e-9 * products.diagonal().mean())  # a past of one row has no other

    def solution(penalty: float) -> Tensor:  # (past, horizon), in the basis of the eigenvectors
        return cross / (eigenvalues + penalty * unit)[:, None]

    penalty = _WITHOUT_VALIDATION
    if val:
        val_gram, val_cross = _centred(_products(val, context_length + horizon), context_length)
        val_gram, val_cross = basis.T @ val_gram @ basis, basis.T @ val_cross

        def error(penalty: float) -> float:  # sum of squares, but for those of the future itself
            weight = solution(penalty)
            return ((weight * (val_gram @ weight)).sum() - 2 * (weight * val_cross).sum()).item()

        penalty = min(_PENALTIES, key=error)
    weight = (basis @ solution(penalty)).T
    return (weight - weight.mean(1, keepdim=True) + 1 / context_length).float()


def _products(series: Sequence[Tensor], length: int) -> Tensor:
    """Sum of the products of each two rows of a window, over all windows and channels: (length, length)."""
    products = torch.zeros(length, length, dtype=torch.float64)
    for part in series:
        rows = part.double().cpu()
        windows = len(rows) - length + 1
        for lag in range(length):
            # Entry (i, i + lag) is the sum over all windows s of row s + i times row s + i + lag.
            running = (rows[: len(rows) - lag] * rows[lag:]).sum(1).cumsum(0)
            entries = running[windows - 1 :].clone()
            entries[1:] -= running[: length - lag - 1]
            products.diagonal(lag).add_(entries)
    return products + products.triu(1).T


def _centred(products: Tensor, context_length: int) -> tuple[Tensor, Tensor]:
    """Return the same products with each window's past mean taken off: past by past, and past by future."""
    xx, xy = products[:context_length, :context_length], products[:context_length, context_length:]
    x_mean = xx.mean(1, keepdim=True)  # of x times mean(x)
    mean_y = xy.mean(0, keepdim=True)
    mean_mean = xx.mean()
    gram = xx - x_mean - x_mean.T + mean_mean
    cross = (xy - x_mean) - (mean_y - mean_mean)
    return gram, cross
