"""The forecasting experiment's model."""

from typing import Any, Literal, TypedDict

from torch import Tensor, nn

from litlab.errors import UserError
from litlab.tasks import Forecaster
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, OpenUnitInterval, PositiveInt
from project.networks.segment_rnn import Cell, Decoder, SegmentRNN
from project.networks.window_forecast import (
    FixedMap,
    ForecastEnsemble,
    InstanceNorm,
    WindowForecast,
)

Skip = Literal["none", "linear", "ridge"]


class Member(TypedDict, total=False):
    """What is different for one network of an average; see `LSTMForecaster`."""

    cell: Cell
    hidden_size: NonNegativeInt
    num_layers: PositiveInt
    segment_length: PositiveInt
    instance_norm: InstanceNorm
    decoder: Decoder
    channel_independent: bool
    head_hidden_size: NonNegativeInt | None
    skip: Skip
    dropout: HalfOpenUnitInterval
    context_length: PositiveInt


class LSTMForecaster(Forecaster):
    """A `Forecaster` with the network `SegmentRNN` between reversible normalisation, and a linear
    skip beside it.

    Left as it is, it is the plain form: an LSTM over the rows, two linear layers from its last
    hidden state. With `ensemble` it is the mean of several such networks.

    Args:
        cell: Kind of recurrent cell.
        hidden_size: Units of every layer. 0, for a member of an average: no recurrent network, the
            skip alone.
        num_layers: Recurrent layers.
        segment_length: Rows read, and with the decoder `parallel` written, in one recurrent step.
        instance_norm: Normalisation of each window and channel by itself, undone in the forecast:
            `subtract_last` subtracts the last value (NLinear, Zeng et al. 2023), `subtract_mean`
            the mean; `revin` divides by the standard deviation as well (RevIN, Kim et al. 2022).
        decoder: `parallel` takes one recurrent step for each output segment, all from the last
            state; `last_hidden` has two linear layers from the last hidden state.
        channel_independent: Forecast each channel from itself alone, with the same weights; or all
            from all.
        head_hidden_size: Units of the hidden layer of the decoder `last_hidden`; 0: one linear
            layer is the head. Left out, as many as hidden_size.
        skip: A linear map from window to forecast that is added. `linear` is trained with the rest;
            `ridge` is the closed-form solution on the training data, and stays as it is: the
            network learns what it leaves.
        dropout: Probability of dropping a unit before the last linear layer, and between recurrent
            layers.
        ensemble: The forecast is the mean of as many networks as there are entries, trained side by
            side, each by itself. An entry says what is different from the settings above, such as
            {context_length: 168, skip: none}: any of those, or `context_length`, the last rows of
            the window that the member reads. Left out, there is one network.
        context_length: Rows of the window. Taken from the data when left out.
        horizon: Rows to forecast. Taken from the data when left out.
        num_targets: Channels of the series. Taken from the data when left out.
        num_covariates: Features of the covariates. Taken from the data when left out; none where
            the data has none.
        loss: What a forecast of one value is trained by.
        quantiles: Quantiles to forecast, ascending and with 0.5, such as [0.05, 0.5, 0.95]: then
            the pinball loss takes the place of `loss`, the median is the forecast and the outermost
            quantiles are the interval before its calibration. Left out, the network forecasts one
            value.
        coverage: Share of the truth that the calibrated intervals are to cover.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If model and data don't fit together.
    """

    def __init__(
        self,
        *,
        cell: Cell = "lstm",
        hidden_size: NonNegativeInt = 64,
        num_layers: PositiveInt = 1,
        segment_length: PositiveInt = 1,
        instance_norm: InstanceNorm = "none",
        decoder: Decoder = "last_hidden",
        channel_independent: bool = False,
        head_hidden_size: NonNegativeInt | None = None,
        skip: Skip = "none",
        dropout: HalfOpenUnitInterval = 0.0,
        ensemble: list[Member] | None = None,
        context_length: PositiveInt | None = None,
        horizon: PositiveInt | None = None,
        num_targets: int | None = None,
        num_covariates: int | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        quantiles: list[OpenUnitInterval] | None = None,
        coverage: OpenUnitInterval = 0.9,
        **training: Any,
    ) -> None:
        if context_length is None or horizon is None or num_targets is None:
            raise UserError(
                "model: context_length, horizon and num_targets are not all set, and the data does "
                "not provide them; set them or use SeriesData"
            )
        sizes = horizon, num_targets, num_covariates or 0, len(quantiles or [1])
        settings: Member = {
            "cell": cell, "hidden_size": hidden_size, "num_layers": num_layers,
            "segment_length": segment_length, "instance_norm": instance_norm, "decoder": decoder,
            "channel_independent": channel_independent, "head_hidden_size": head_hidden_size,
            "skip": skip, "dropout": dropout, "context_length": context_length,
        }  # fmt: skip
        members = [build_network(*sizes, **settings | member) for member in ensemble or [{}]]
        if any(member.rows > context_length for member in members):
            raise UserError(
                f"model.ensemble: the data's window has {context_length} rows; set no "
                "more in a member"
            )
        network = members[0] if ensemble is None else ForecastEnsemble(members)
        super().__init__(
            network, horizon=horizon, num_targets=num_targets, loss=loss, quantiles=quantiles,
            coverage=coverage, **training,
        )  # fmt: skip
        self.context_length = context_length
        self.num_covariates = num_covariates or 0

    def on_train_start(self) -> None:
        """Set the skips that are ridge regressions, unless a checkpoint holds them."""
        maps = [
            part
            for part in self.network.modules()
            if isinstance(part, FixedMap) and not part.is_set
        ]
        data = getattr(self.trainer, "datamodule", None)
        if maps and not hasattr(data, "ridge"):
            raise UserError(
                f"model.skip: ridge needs a DataModule with ridge(), and {type(data).__name__} has "
                "none; use SeriesData or skip: linear"
            )
        for part in maps:
            assert data is not None
            # Solved once: ranks whose solutions differ in the last bit would train different
            # networks.
            weight: Tensor | None = (
                data.ridge(part.weight.shape[1]).cpu() if self.trainer.is_global_zero else None
            )
            part.set(self.trainer.strategy.broadcast(weight))  # pyright: ignore[reportArgumentType]


def build_network(
    horizon: int, channels: int, covariates: int, outputs: int,
    *, skip: Skip, instance_norm: InstanceNorm, context_length: int, **recurrent: Any,
) -> WindowForecast:  # fmt: skip
    """Build one network, by settings of `LSTMForecaster`."""
    network: nn.Module | None = None
    if recurrent["hidden_size"]:
        # What training starts from is the skip's forecast; not quite, or the layers below got no
        # gradient.
        std = None if skip == "none" else 1e-3
        network = SegmentRNN(
            context_length,
            horizon,
            channels,
            covariates,
            outputs=outputs,
            head_std=std,
            **recurrent,
        )
    elif skip == "none":
        raise UserError(
            "model.hidden_size: 0 leaves nothing but the skip, and there is none; set a skip"
        )
    linear: nn.Module | None = None
    if skip == "ridge":
        linear = FixedMap(context_length, horizon)
    elif skip == "linear":
        linear = nn.Linear(context_length, horizon)
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
    return WindowForecast(network, instance_norm, linear, context_length)
