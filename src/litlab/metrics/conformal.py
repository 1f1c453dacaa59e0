"""Prediction intervals that cover a set share, by split-conformal calibration."""

import math

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from litlab.metrics.sums import gather_rows


class Conformal(Metric):
    """Widen (or narrow) intervals to cover a share of a held-out split, for each horizon step and channel.

    Of each held-out window it takes how far the truth lies outside the model's interval: max(lower - y, y - upper).
    The ceil((n + 1) * coverage)-th smallest of these n scores is the `radius` that both ends are moved by. That is
    conformalised quantile regression (Romano et al. 2019, arXiv:1905.03222). For a point forecast, an interval without
    width, the score is the absolute error: split-conformal prediction (Vovk et al. 2005; Lei et al. 2018,
    arXiv:1604.04173). The coverage is guaranteed where held-out and later windows are exchangeable; those of a series
    that drifts are not quite, so it is measured in the test as well.

    The radius is neither state nor buffer: it belongs to the weights that were validated, and an average of weights
    must not average it.

    Args:
        coverage: Share of the truth that the intervals are to cover, between 0 and 1.
    """

    full_state_update = False
    scores: list[Tensor]

    def __init__(self, coverage: float) -> None:
        super().__init__(dist_sync_fn=gather_rows)
        self.coverage = coverage
        self.radius: Tensor | None = None  # (horizon, channel); as `compute` returns it, or None
        self.add_state("scores", [], "cat")

    def update(self, lower: Tensor, upper: Tensor, future: Tensor) -> None:
        """Add held-out windows, everything of shape (batch, horizon, channel)."""
        self.scores.append(torch.maximum(lower - future, future - upper).float())

    def compute(self) -> Tensor | None:
        """Return the radius (horizon, channel) of all windows since the reset; None if they are too few."""
        scores = dim_zero_cat(self.scores)
        rank = math.ceil((len(scores) + 1) * self.coverage - 1e-9)  # the product can come out above a whole number
        if rank > len(scores):
            return None
        # Not `kthvalue`: it has no deterministic form on GPUs. A view would put all scores into the checkpoint.
        return scores.topk(len(scores) - rank + 1, dim=0).values[-1].clone()

    def interval(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return the calibrated ends of intervals of shape (batch, horizon, channel), NaN without calibration."""
        if self.radius is None:
            return torch.full_like(lower, math.nan), torch.full_like(upper, math.nan)
        radius = self.radius.to(lower.device)
        middle = (lower + upper) / 2  # where a negative radius would turn the interval inside out
        return torch.minimum(lower - radius, middle), torch.maximum(upper + radius, middle)
