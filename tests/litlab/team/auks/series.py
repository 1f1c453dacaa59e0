"""Series."""

from typing import Any

from torch import nn

from litlab.tasks import Forecaster


class ThreeLayers(nn.Module):
    """Forecast each channel from itself, with three layers."""

    def __init__(self, context_length: int, horizon: int, hidden_size: int, outputs: int) -> None:
        super().__init__()
        second = nn.Linear(hidden_size, hidden_size)
        last = nn.Linear(hidden_size, horizon * outputs)
        first = nn.Linear(context_length, hidden_size)
        self.layers = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Dropout(0.1), last)
        self.shape = (horizon, outputs)

    def forward(self, past, covariates=None):
        return self.layers(past.mT).unflatten(-1, self.shape).transpose(1, 2)


class SmallForecaster(Forecaster):
    """Forecast each channel from itself, with three layers.

    Args:
        hidden_size: Units of a layer.
        context_length: Rows of the window. Taken from the data when left out.
        horizon: Rows to forecast. Taken from the data when left out.
        num_targets: Channels of the series. Taken from the data when left out.
        quantiles: Quantiles to forecast; left out, one value.
        **settings: As of `Forecaster`.
    """

    def __init__(
        self,
        hidden_size: int = 8,
        context_length: int | None = None,
        horizon: int | None = None,
        num_targets: int | None = None,
        quantiles: list[float] | None = None,
        **settings: Any,
    ) -> None:
        network = ThreeLayers(context_length, horizon, hidden_size, len(quantiles or [1]))
        super().__init__(
            network, horizon=horizon, num_targets=num_targets, quantiles=quantiles, **settings
        )
