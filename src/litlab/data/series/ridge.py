"""Ridge regression from window to forecast, in closed form: what a network has to beat, or begins with."""

from collections.abc import Mapping

import torch
from torch import Tensor

# Penalties that are tried, relative to the mean eigenvalue of the windows' second moments: a decade in two steps.
_PENALTIES = [10 ** (k / 2) for k in range(-12, 5)]


def fit_ridge(rows: Tensor, starts: Mapping[str, Tensor], context_length: int, horizon: int) -> Tensor:
    """Fit the linear map from window to forecast that ridge regression gives (Hoerl & Kennard 1970).

    Each window is taken relative to the mean of its past, x - mean(x) to y - mean(x), and all channels are pooled; the
    result acts on windows as they are: W (I - 11'/n) + 11'/n. The penalty is the one with the least squared error on
    the validation windows; without them it is 0.01 times the mean eigenvalue.

    Nothing is computed per window: neighbouring windows share all but one of their products, so the normal equations
    and the errors of all penalties follow from running sums, in float64.

    Args:
        rows: All rows, scaled, (time, channel).
        starts: As of `find_starts`: where the windows of ``train`` begin, and of ``val`` where there are any.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.

    Returns:
        float32 (horizon, context_length), on the CPU; its rows sum to 1.
    """
    gram, cross = _sum_products(rows, starts["train"], context_length, horizon)
    unit = gram.trace() / context_length  # the mean eigenvalue
    ridge = torch.eye(context_length) * unit.clamp_min(1e-6)  # a past of one row has no eigenvalue but 0

    penalties = _PENALTIES if "val" in starts else [0.01]
    weights = [torch.linalg.solve(gram + penalty * ridge, cross) for penalty in penalties]
    gram, cross = _sum_products(rows, starts.get("val", starts["train"]), context_length, horizon)
    best = min(weights, key=lambda weight: float((weight * (gram @ weight - 2 * cross)).sum())).T
    return (best - best.mean(1, keepdim=True) + 1 / context_length).float()


def _sum_products(rows: Tensor, starts: Tensor, context_length: int, horizon: int) -> tuple[Tensor, Tensor]:
    """Sum the products of the rows of a window, relative to the mean of its past, over all windows and channels.

    Returns:
        Past by past, (context_length, context_length), and past by future, (context_length, horizon).
    """
    length = context_length + horizon
    products = torch.zeros(length, length, dtype=torch.float64)
    jumps = torch.nonzero(starts.diff() > 1).flatten() + 1  # from series to series
    for windows in starts.tensor_split(jumps):
        part = rows[windows[0] : windows[-1] + length].double().cpu()
        for lag in range(length):
            # Entry (i, i + lag) is the sum over all windows s of row s + i times row s + i + lag.
            running = (part[: len(part) - lag] * part[lag:]).sum(1).cumsum(0)
            running = torch.cat([running.new_zeros(1), running])
            products.diagonal(lag).add_(running[len(windows) :] - running[: length - lag])
    products += products.triu(1).T

    relative = torch.eye(length, dtype=products.dtype)
    relative[:, :context_length] -= 1 / context_length
    past = (relative @ products @ relative.T)[:context_length]
    return past[:, :context_length], past[:, context_length:]
