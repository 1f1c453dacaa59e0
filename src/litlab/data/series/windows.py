"""All windows of some series, cut out by indexing: which are for what, and the linear map that fits
them best.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from litlab.data.series.regular import Series
from litlab.data.split import SPLITS
from litlab.errors import UserError
from litlab.util.text import plural


class Windows(Dataset[dict[str, Tensor]]):
    """Windows of equal length; indexed by a tensor, it returns a batch.

    A batch is gathered from strided views of the series: nothing but its start is stored per
    window, and no Python runs per window.

    Args:
        encoded: As of `SeriesServing.encode`, in memory or on a device: ``past``, float32 (time,
            channel), all rows; where there are some ``covariates``, float32 (time, feature).
        starts: Rows where the past of each window begins, int64 of shape (window,).
        context_length: Rows of the past.
        horizon: Rows of the future.
    """

    def __init__(
        self, encoded: dict[str, Tensor], starts: Tensor, context_length: int, horizon: int
    ) -> None:
        # Of each tensor in a batch the rows that it is cut from, and its length. The future of the
        # window that begins at a row begins `context_length` rows later
        values = encoded["past"]
        self.device = values.device
        self.starts = starts.to(self.device)
        cuts = {"past": (values, context_length), "future": (values[context_length:], horizon)}
        if "covariates" in encoded:
            cuts["covariates"] = encoded["covariates"], context_length + horizon
        # (window, length, column): the window that begins at each row, in the memory of the rows
        self.views = {
            name: source.unfold(0, length, 1).transpose(1, 2)
            for name, (source, length) in cuts.items()
        }

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the windows, int64 of shape (batch,), on the CPU.

        Returns:
            past: float32 (batch, context_length, channel); future: (batch, horizon, channel), where
                it is known;
            covariates: (batch, context_length + horizon, feature), where there are some; start:
            int64 (batch,), row where the past begins.
        """
        start = self.starts.index_select(0, index.to(self.device, non_blocking=True))
        return {name: view.index_select(0, start) for name, view in self.views.items()} | {
            "start": start
        }


def find_starts(
    series: Series, split: np.ndarray, context_length: int, horizon: int
) -> dict[str, Tensor]:
    """Say where the windows of train, val and test begin.

    The past of validation and test windows may reach back into the rows before; what they forecast
    may not, and it holds no value that was made up.

    Args:
        series: The series.
        split: The split of each row, str of shape (row,).
        context_length: Rows of the past.
        horizon: Rows to forecast.

    Returns:
        For each split that has rows: the rows where the past of its windows begins, int64 of shape
            (window,).

    Raises:
        UserError: A split has rows, but too few for one window.
    """
    # For each row that a window could begin at: the row where its future begins, and its last one
    number = series.table.index.codes[0]  # of its series, for each row
    first = np.arange(len(split) - context_length - horizon + 1)
    future = first + context_length
    last = future + horizon - 1
    is_whole = number[first] == number[last]  # within one series
    # How many interpolated rows come before each row: none is in the future where both ends agree
    made_up = np.append(0, series.table.index.isin(series.made_up).cumsum())
    is_true = made_up[future] == made_up[last + 1]

    # A split's windows are those whose future is all in it; training may learn from made-up values
    starts = {}
    for name in SPLITS:
        is_in = is_whole & (split[future] == name) & (split[last] == name)
        begins = first[is_in & (is_true | (name == "train"))]
        if len(begins):
            starts[name] = torch.from_numpy(begins)
        elif name == "train" or name in split:
            free = " whose future is not interpolated" if is_in.any() else ""
            raise UserError(
                f"data: no window{free} fits into {plural((split == name).sum(), f'{name} row')}; "
                "give more rows, a smaller data.context_length or data.horizon, or another split"
            )
    return starts


# Penalties that are tried, relative to the mean eigenvalue of the windows' second moments: a decade
# in two steps.
_PENALTIES = [10 ** (k / 2) for k in range(-12, 5)]


def fit_ridge(
    values: Tensor, starts: Mapping[str, Tensor], context_length: int, horizon: int
) -> Tensor:
    """Fit the linear map from window to forecast that ridge regression gives (Hoerl & Kennard
    1970).

    Each window is taken relative to the mean of its past, x - mean(x) to y - mean(x), and all
    channels are pooled; the result acts on windows as they are: W (I - 11'/n) + 11'/n. The penalty
    is the one with the least squared error on the validation windows; without them it is 0.01 times
    the mean eigenvalue.

    Nothing is computed per window: neighbouring windows share all but one of their products, so the
    normal equations and the errors of all penalties follow from running sums, in float64.

    Args:
        values: All rows, scaled, (time, channel).
        starts: As of `find_starts`: where the windows of ``train`` begin, and of ``val`` where
            there are any.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.

    Returns:
        float32 (horizon, context_length), on the CPU; its rows sum to 1.
    """
    # Past by past and past by future, of the training windows
    gram, cross = _sum_products(values, starts["train"], context_length, horizon)
    unit = gram.trace() / context_length  # the mean eigenvalue
    # A past of one row has no eigenvalue but 0
    ridge = torch.eye(context_length) * unit.clamp_min(1e-6)

    penalties = _PENALTIES if "val" in starts else [0.01]
    weights = [torch.linalg.solve(gram + penalty * ridge, cross) for penalty in penalties]
    # The squared error on validation, less the constant |y|^2: w'Gw - 2w'c
    gram, cross = _sum_products(values, starts.get("val", starts["train"]), context_length, horizon)
    best = min(weights, key=lambda weight: float((weight * (gram @ weight - 2 * cross)).sum())).T
    # From windows relative to their mean to windows as they are
    return (best - best.mean(1, keepdim=True) + 1 / context_length).float()


def _sum_products(
    values: Tensor, starts: Tensor, context_length: int, horizon: int
) -> tuple[Tensor, Tensor]:
    """Sum the products of the rows of a window, relative to the mean of its past, over all windows
    and channels.

    Returns:
        Past by past, (context_length, context_length), and past by future, (context_length,
        horizon).
    """
    # Products of each two rows of a window, (length, length), by their distance. Windows that begin
    # one row apart are treated together
    length = context_length + horizon
    products = torch.zeros(length, length, dtype=torch.float64)
    jumps = torch.nonzero(starts.diff() > 1).flatten() + 1  # from series to series
    for windows in starts.tensor_split(jumps):
        block = values[windows[0] : windows[-1] + length].double().cpu()
        for lag in range(length):
            # Entry (i, i + lag) is the sum over all windows s of row s + i times row s + i + lag.
            running = pad((block[: len(block) - lag] * block[lag:]).sum(1).cumsum(0), (1, 0))
            products.diagonal(lag).add_(running[len(windows) :] - running[: length - lag])
    products += products.triu(1).T  # the lower half is the same

    # x - mean(past) is a linear map of the window, so it acts on the sums from both sides
    relative = torch.eye(length, dtype=products.dtype)
    relative[:, :context_length] -= 1 / context_length
    past = (relative @ products @ relative.T)[:context_length]
    return past[:, :context_length], past[:, context_length:]
