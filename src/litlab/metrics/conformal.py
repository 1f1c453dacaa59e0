"""Prediction intervals that cover a set share, by split-conformal calibration."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


class Conformal:
    """Widen (or narrow) intervals to cover a share of a held-out split, for each horizon step and channel.

    Of each held-out window it takes how far the truth lies outside the model's interval: max(lower - y, y - upper).
    The ceil((n + 1) * coverage)-th smallest of these n scores is the `radius` that both ends are moved by. That is
    conformalised quantile regression (Romano et al. 2019, arXiv:1905.03222). For a point forecast, an interval without
    width, the score is the absolute error: split-conformal prediction (Vovk et al. 2005; Lei et al. 2018,
    arXiv:1604.04173). The coverage is guaranteed where held-out and later windows are exchangeable; those of a series
    that drifts are not quite, so it is measured in the test as well.

    The radius is a plain attribute, not a buffer: it belongs to the weights that were validated, and an average of the
    weights must not average or exchange it.

    Args:
        coverage: Share of the truth that the intervals are to cover, between 0 and 1.
        shape: Horizon steps and channels.
    """

    def __init__(self, coverage: float, shape: tuple[int, int]) -> None:
        self.coverage = coverage
        self.shape = shape
        self.radius: Tensor | None = None  # (horizon, channel); None until calibrated
        self._scores: list[Tensor] = []

    @property
    def windows_needed(self) -> int:
        """Number of held-out windows below which no finite radius covers the share."""
        return math.ceil(self.coverage / (1 - self.coverage) - 1e-9)

    def reset(self, device: torch.device) -> None:
        """Start a calibration on this device; the radius stays what it is until `calibrate`."""
        self._scores = [torch.empty(0, *self.shape, device=device)]  # a rank may get no window at all

    def add(self, lower: Tensor, upper: Tensor, future: Tensor) -> None:
        """Add held-out windows, everything of shape (batch, horizon, channel)."""
        self._scores.append(torch.maximum(lower - future, future - upper).float())

    def calibrate(self, gather: Callable[[Tensor], Tensor]) -> None:
        """Set the radius from all windows since `reset`, to None if they are too few.

        Args:
            gather: Joins the scores (window, horizon, channel) of all ranks.
        """
        scores, self._scores = gather(torch.cat(self._scores)), []
        rank = math.ceil((len(scores) + 1) * self.coverage - 1e-9)  # the product can come out above a whole number
        # Not `kthvalue`: it has no deterministic form on GPUs. A view would put all scores into the checkpoint.
        self.radius = None
        if rank <= len(scores):
            self.radius = scores.topk(len(scores) - rank + 1, dim=0).values[-1].clone()

    def interval(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return the calibrated ends of intervals of shape (batch, horizon, channel), NaN without calibration."""
        if self.radius is None:
            return torch.full_like(lower, math.nan), torch.full_like(upper, math.nan)
        self.radius = self.radius.to(lower.device)
        middle = (lower + upper) / 2  # where a negative radius would turn the interval inside out
        return torch.minimum(lower - self.radius, middle), torch.maximum(upper + self.radius, middle)
