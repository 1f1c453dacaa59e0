"""Series."""

from typing import Any, Literal

from torch import nn

from litlab.errors import UserError
from litlab.tasks import Forecaster

Activation = Literal["tanh", "relu"]


class ThreeLayers(nn.Module):
    """Forecast each channel from itself, with three layers."""

    def __init__(
        self,
        context_length: int,
        horizon: int,
        hidden_size: int,
        outputs: int,
        activation: Activation,
    ) -> None:
        super().__init__()
        between = {"tanh": nn.Tanh(), "relu": nn.ReLU()}[activation]
        second = nn.Linear(hidden_size, hidden_size)
        last = nn.Linear(hidden_size, horizon * outputs)
        first = nn.Linear(context_length, hidden_size)
        self.layers = nn.Sequential(first, between, second, between, nn.Dropout(0.1), last)
        self.shape = (horizon, outputs)

    def forward(self, past, covariates=None):
        return self.layers(past.mT).unflatten(-1, self.shape).transpose(1, 2)


class SmallForecaster(Forecaster):
    """Forecast each channel from itself, with three layers.

    Args:
        hidden_size: Units of a layer.
        activation: What comes between the layers.
        context_length: Rows of the window. Taken from the data when left out.
        horizon: Rows to forecast. Taken from the data when left out.
        num_targets: Channels of the series. Taken from the data when left out.
        quantiles: Quantiles to forecast; left out, one value.
        **settings: As of `Forecaster`.
    """

    def __init__(
        self,
        hidden_size: int = 8,
        activation: Activation = "tanh",
        context_length: int | None = None,
        horizon: int | None = None,
        num_targets: int | None = None,
        quantiles: list[float] | None = None,
        **settings: Any,
    ) -> None:
        if context_length is None or horizon is None or num_targets is None:
            raise UserError(
                "model: context_length, horizon or num_targets is not set, and the "
                "data does not give it."
            )
        network = ThreeLayers(
            context_length, horizon, hidden_size, len(quantiles or [1]), activation
        )
        super().__init__(
            network, horizon=horizon, num_targets=num_targets, quantiles=quantiles, **settings
        )
