"""What surrounds a forecasting network: normalisation of each window, a linear skip, the mean of
several.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

InstanceNorm = Literal["none", "subtract_last", "subtract_mean", "revin"]
Skip = Literal["none", "linear", "ridge"]


class FixedMap(nn.Module):
    """A linear map that is given, not trained: no bias, and zero until it is set.

    Args:
        rows: Size of its input.
        horizon: Size of its output.
    """

    def __init__(self, rows: int, horizon: int) -> None:
        super().__init__()
        self.weight: Tensor
        self.is_set: Tensor
        self.register_buffer("weight", torch.zeros(horizon, rows))
        self.register_buffer("is_set", torch.tensor(False))

    def set(self, weight: Tensor) -> None:
        """Set the map.

        Args:
            weight: Shape (horizon, rows).
        """
        self.weight.copy_(weight)
        self.is_set.fill_(True)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (..., horizon) from (..., rows)."""
        return F.linear(x, self.weight)


class WindowForecast(nn.Module):
    """A forecasting network between reversible instance normalisation, and a linear map from window
    to forecast beside it; a subclass defines `forecast`.

    Each window and channel is normalised by itself, and its forecast is brought back to where the
    window was (Kim et al. 2022, https://openreview.net/forum?id=cGDAkQo1C0p, here without learned
    scales): a series that drifts looks the same at every level. The skip forecasts what is linear
    (Zeng et al. 2023, arXiv:2205.13504), the network the rest.

    Args:
        rows: Last rows of the window that are read.
        horizon: Rows to forecast.
        instance_norm: `subtract_last` subtracts the window's last value, `subtract_mean` its mean;
            `revin` divides by its standard deviation as well.
        skip: `linear` is a trained map of the normalised window to the horizon, `ridge` a
            `FixedMap`: if its rows sum to one, it carries any level through, so it means the same
            for every normalisation.
    """

    def __init__(self, rows: int, horizon: int, instance_norm: InstanceNorm, skip: Skip) -> None:
        super().__init__()
        self.rows = rows
        self.instance_norm = instance_norm
        self.skip: Any = None
        if skip == "ridge":
            self.skip = FixedMap(rows, horizon)
        elif skip == "linear":
            self.skip = nn.utils.skip_init(nn.Linear, rows, horizon)
            nn.init.zeros_(self.skip.weight)
            nn.init.zeros_(self.skip.bias)

    @abstractmethod
    def forecast(self, past: Tensor, covariates: Tensor | None) -> Tensor:
        """Forecast the normalised window.

        Args:
            past: Shape (batch, rows, channel).
            covariates: Shape (batch, rows + horizon, feature), where there are some.

        Returns:
            Shape (batch, horizon, channel, outputs), or () for the skip alone.
        """

    def forward(self, past: Tensor, covariates: Tensor | None = None) -> Tensor:
        """Forecast of shape (batch, horizon, channel, outputs), outputs being 1 where there is a
        skip only.

        Args:
            past: Shape (batch, context_length, channel).
            covariates: Shape (batch, context_length + horizon, feature), where there are some.
        """
        unread = past.shape[1] - self.rows
        past = past[:, unread:]
        covariates = None if covariates is None else covariates[:, unread:]
        level, scale = self._level_and_scale(past)
        past = (past - level) / scale
        outputs = self.forecast(past, covariates)
        if self.skip is not None:
            outputs = outputs + self.skip(past.transpose(1, 2)).transpose(1, 2).unsqueeze(-1)
        return outputs * scale.unsqueeze(-1) + level.unsqueeze(-1)

    def _level_and_scale(self, past: Tensor) -> tuple[Tensor, Tensor]:
        """Both of shape (batch or 1, 1, channel or 1)."""
        zero, one = past.new_zeros(1, 1, 1), past.new_ones(1, 1, 1)
        if self.instance_norm == "none":
            return zero, one
        if self.instance_norm == "subtract_last":
            return past[:, -1:], one
        mean = past.mean(dim=1, keepdim=True)
        if self.instance_norm == "subtract_mean":
            return mean, one
        variance = past.var(dim=1, keepdim=True, unbiased=False)
        return mean, (variance + 1e-5).sqrt()  # a constant window has none


class ForecastEnsemble(nn.Module):
    """The mean of several forecasting networks, each trained by itself.

    Unlike networks err differently, and their mean errs less than any of them (Bates & Granger
    1969, https://doi.org/10.1057/jors.1969.103).

    Args:
        members: The networks; each returns (batch, horizon, channel, outputs).
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, past: Tensor, covariates: Tensor | None = None) -> Tensor:
        """In training all forecasts, shape (member, batch, horizon, channel, outputs); else their
        mean.
        """
        forecasts = torch.broadcast_tensors(*(member(past, covariates) for member in self.members))
        stacked = torch.stack(forecasts)
        return stacked if self.training else stacked.mean(dim=0)
