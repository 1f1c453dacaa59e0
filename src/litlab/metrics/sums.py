"""Metrics that are quotients of sums over samples, and how the states of metrics are gathered."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

# Of sums: exact over millions of samples, and whenever a run was interrupted. Apple's GPUs don't have it.
WIDEST = torch.float32 if torch.backends.mps.is_available() else torch.float64


def gather_rows(state: Tensor, group: Any = None) -> list[Tensor]:
    """Return the state that each rank has of a metric, of those that have any.

    As objects: of a rank without a sample torchmetrics (1.9) can't know the type and shape of the others' tensors.

    Args:
        state: This rank's, of any shape; of the other ranks its first dimension may be another one.
        group: Ranks to gather from; None: all.
    """
    parts: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(parts, state.cpu(), group)
    return [part.to(state.device) for part in parts if part.numel()] or [state]


class Sums(Metric):
    """A metric that adds up numbers, over samples and ranks.

    Not torchmetrics' MeanMetric (1.9): it waits for the device to look for NaN, or, told not to, forgets the weights.

    Args:
        shape: Shape of ``sums``, in which they are added up: rows, and columns where there are several.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(shape, dtype=WIDEST), dist_reduce_fx="sum")

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a tensor for each row of ``sums``, over all but its last dimensions; subclasses say what they take."""
        columns = self.sums.shape[1:]
        self.sums = self.sums + torch.stack([term.reshape(-1, *columns).sum(dim=0, dtype=WIDEST) for term in args])

    def compute(self) -> Any:
        return self.sums


class RegressionErrors(Sums):
    """Mean squared error, mean absolute error and R2 (the share of the variance that is explained) of each target.

    Not torchmetrics' own (1.9): its R2Score takes sums below 1e-4 for zero, so that small units have an R2 of 1, and
    float32 sums of errors depend on where a run was interrupted.

    Args:
        targets: Their names. Several are told apart by them: ``mse_price``; a single one is just ``mse``.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        super().__init__(5, len(targets))
        self.endings = [f"_{name}" for name in targets] if len(targets) > 1 else [""]

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows, both float of shape (row, target)."""
        target = target.to(WIDEST)
        error = predicted.to(WIDEST) - target
        super().update(torch.ones_like(target), error.square(), error.abs(), target, target.square())

    def compute(self) -> dict[str, Tensor]:
        """Return the errors of each target, each of shape (); R2 is NaN where the target never changes."""
        count, squared, absolute, total, total_squared = self.sums
        variation = total_squared - total.square() / count
        r2 = (1 - squared / variation).where(variation > 1e-12 * total_squared, torch.nan)
        values = {}
        for place, ending in enumerate(self.endings):
            errors = {"mse": squared / count, "mae": absolute / count, "r2": r2}
            values |= {f"{name}{ending}": error[place].float() for name, error in errors.items()}
        return values


class ForecastMetrics(Sums):
    """Mean errors of forecasts, and coverage and width of their intervals where they have any.

    Args:
        channels: Channels of the series.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(5, channels)
        self.naive_error: Tensor | None = None  # shape (channel,); with it there is mase

    def update(self, predicted: Tensor, future: Tensor) -> None:
        """Add windows.

        Args:
            predicted: Forecast and ends of its interval, which may be NaN, (batch, horizon, channel, 3).
            future: The truth, (batch, horizon, channel).
        """
        forecast, lower, upper = predicted.unbind(dim=-1)
        error = forecast - future
        covered = (lower <= future) & (future <= upper)
        super().update(torch.ones_like(error), error.square(), error.abs(), covered, upper - lower)

    def compute(self) -> dict[str, Tensor]:
        """Return the means, each of shape ()."""
        count, *totals = self.sums
        squared, absolute, coverage, width = ((total / count).float() for total in totals)  # of each channel
        values = {"mse": squared.mean(), "mae": absolute.mean()}
        if not width.isnan().any():
            values |= {"coverage": coverage.mean(), "interval_width": width.mean()}
        if self.naive_error is not None:
            values["mase"] = (absolute / self.naive_error.to(absolute)).mean()
        return values
