"""Forecasts that take no training by gradients: what a network has to beat.

All work on windows of shape (batch, time, channel) and treat every channel alike.
"""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor

from litlab.data.series.windows import Windows

# Penalties that are tried, relative to the mean eigenvalue of the windows' second moments: a decade in two steps.
_PENALTIES = [10 ** (k / 2) for k in range(-12, 5)]
_WITHOUT_VALIDATION = 1e-2
_CHUNK = 2**24  # numbers in the batches that the errors are computed on


def repeat_last(past: Tensor, horizon: int) -> Tensor:
    """Forecast that everything stays as it is: (batch, horizon, channel) from (batch, context_length, channel)."""
    return past[:, -1:].expand(-1, horizon, -1)


def seasonal_naive(past: Tensor, horizon: int, season: int) -> Tensor:
    """Forecast that the last season, which the past holds, comes again and again: (batch, horizon, channel)."""
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
        train: Training rows of each series, (time, channel), at least one window long.
        val: Validation rows of each series together with the `past` rows before them, likewise; empty where there are
            none.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.

    Returns:
        float32 (horizon, context_length), on the CPU; its rows sum to 1.
    """
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
    return reduce(torch.add, [_products_of_one(rows.double().cpu(), length) for rows in series])


def _products_of_one(rows: Tensor, length: int) -> Tensor:
    windows = len(rows) - length + 1
    products = torch.empty(length, length, dtype=torch.float64)
    for lag in range(length):
        # Entry (i, i + lag) is the sum over all windows s of row s + i times row s + i + lag.
        running = (rows[: len(rows) - lag] * rows[lag:]).sum(1).cumsum(0)
        entries = running[windows - 1 :].clone()
        entries[1:] -= running[: length - lag - 1]
        products.diagonal(lag).copy_(entries)
        products.diagonal(-lag).copy_(entries)
    return products


def _centred(products: Tensor, context_length: int) -> tuple[Tensor, Tensor]:
    """Return the same products with each window's past mean taken off: past by past, and past by future."""
    xx, xy = products[:context_length, :context_length], products[:context_length, context_length:]
    x_mean = xx.mean(1, keepdim=True)  # of x times mean(x)
    mean_y = xy.mean(0, keepdim=True)
    mean_mean = xx.mean()
    gram = xx - x_mean - x_mean.T + mean_mean
    cross = (xy - x_mean) - (mean_y - mean_mean)
    return gram, cross


def forecast_errors(
    methods: dict[str, Callable[[Tensor], Tensor]], windows: Windows, naive_error: Tensor
) -> dict[str, dict[str, float]]:
    """Mean errors of several methods over all windows, rows and channels.

    Args:
        methods: Name and function from past (batch, context_length, channel) to forecast (batch, horizon, channel).
        windows: The windows.
        naive_error: What the absolute errors of each channel are divided by for the mase (Hyndman & Koehler 2006),
            (channel,).

    Returns:
        For each method its mse, mae and mase.
    """
    sums = {name: torch.zeros(3, dtype=torch.float64) for name in methods}
    count = 0
    size = max(1, _CHUNK // sum(view.shape[1] for view in windows.views.values()))
    for index in torch.arange(len(windows)).split(size):
        batch = windows[index]
        past, future = batch["past"], batch["future"]
        count += future.numel()
        for name, method in methods.items():
            error = method(past) - future
            absolute = error.abs().sum((0, 1))
            scaled = (absolute / naive_error.to(absolute)).sum()
            sums[name] += torch.stack([error.square().sum(), absolute.sum(), scaled]).double().cpu()
    return {name: dict(zip(("mse", "mae", "mase"), (s / count).tolist(), strict=True)) for name, s in sums.items()}
