"""The forecasting experiment's model."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.nn import DEEPEST
from litlab.optim import Schedule
from litlab.tasks import Forecaster
from project.networks.segment_rnn import SegmentRNN
from project.networks.window_forecast import FixedMap, ForecastAverage, WindowForecast


class LSTMForecaster(Forecaster):
    """A `Forecaster` with the network `SegmentRNN` between reversible normalisation, and a linear skip beside it.

    Left as it is, it is the plain form: an LSTM over the rows, two linear layers from its last hidden state. With
    `members` it is the mean of several such networks.

    Args:
        cell: Kind of recurrent cell.
        width: Units of every layer. 0, for a member of an average: no recurrent network, the skip alone.
        layers: Recurrent layers.
        segment: Rows read, and with the decoder `parallel` written, in one recurrent step.
        normalise: Of each window and channel by itself, undone in the forecast: `last` subtracts the last value, `mean`
            the mean, `standard` divides by the standard deviation as well.
        decoder: `parallel` takes one recurrent step for each output segment, all from the last state; `last_hidden` has
            two linear layers from the last hidden state.
        channel_independent: Forecast each channel from itself alone, with the same weights; or all from all.
        skip: A linear map from window to forecast that is added. `linear` is trained with the rest; `ridge` is the
            closed-form solution on the training data, and stays as it is: the network learns what it leaves.
        dropout: Probability of dropping a unit before the last linear layer, and between recurrent layers.
        members: The forecast is the mean of as many networks as there are entries, trained side by side, each by
            itself. An entry says what is different from the settings above, such as {past: 168, skip: none}: any of
            those, or `past`, the last rows of the window that the member reads. Left out, there is one network.
        past: Rows of the window. Taken from the data when left out.
        horizon: Rows to forecast. Taken from the data when left out.
        num_targets: Channels of the series. Taken from the data when left out.
        num_covariates: Features of the calendar. Taken from the data when left out; none where the data has none.
        loss: What a forecast of one value is trained by.
        quantiles: Quantiles to forecast, ascending and with 0.5, such as [0.05, 0.5, 0.95]: then the pinball loss
            takes the place of `loss`, the median is the forecast and the outermost quantiles are the interval before
            its calibration. Left out, the network forecasts one value.
        coverage: Share of the truth that the calibrated intervals are to cover.
        optimizer: Any torch.optim class, without its parameters. Left out, AdamW with its defaults.
        schedule: Learning-rate schedule. Left out, the learning rate stays as it is.

    Raises:
        UserError: If a value is out of range, or model and data don't fit together.
    """

    def __init__(
        self,
        cell: Literal["lstm", "gru"] = "lstm",
        width: int = 64,
        layers: int = 1,
        segment: int = 1,
        normalise: Literal["none", "last", "mean", "standard"] = "none",
        decoder: Literal["parallel", "last_hidden"] = "last_hidden",
        channel_independent: bool = False,
        skip: Literal["none", "linear", "ridge"] = "none",
        dropout: float = 0.0,
        members: list[dict[str, Any]] | None = None,
        past: int | None = None,
        horizon: int | None = None,
        num_targets: int | None = None,
        num_covariates: int | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        quantiles: list[float] | None = None,
        coverage: float = 0.9,
        optimizer: OptimizerCallable | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        if past is None or horizon is None or num_targets is None:
            raise UserError(
                "model.past, model.horizon and model.num_targets are not all set, and the data does not tell them."
            )
        common = _Member(
            cell, width, layers, segment, normalise, decoder, channel_independent, skip, dropout, past=past
        )
        sizes = horizon, num_targets, num_covariates or 0, len(quantiles or [1])
        if members is None:
            common.check(past, "model.")
            if not width:
                raise UserError("model.width is 0: a skip alone has nothing to train; set it to 2 or more.")
            network = common.network(*sizes)
        else:
            parts = [_member(common, entry, f"model.members[{number}].") for number, entry in enumerate(members)]
            for number, part in enumerate(parts):
                part.check(past, f"model.members[{number}].")
            if not any(part.width for part in parts):
                raise UserError("model.members: none of them has a width above 0, so there is nothing to train.")
            network = ForecastAverage(part.network(*sizes) for part in parts)
        super().__init__(network, horizon, num_targets, loss, quantiles, coverage, optimizer, schedule)
        self.past = past
        self.num_covariates = num_covariates or 0

    def on_train_start(self) -> None:
        """Sets the skips that are ridges, in a training that starts from nothing."""
        maps = [part for part in self.network.modules() if isinstance(part, FixedMap) and not part.is_set]
        data = getattr(self.trainer, "datamodule", None)
        if maps and not hasattr(data, "ridge"):
            raise UserError(
                f"model.skip is ridge, but {type(data).__name__} has no ridge(): use SeriesData or skip: linear."
            )
        for part in maps:
            assert data is not None
            # Solved once: ranks whose solutions differ in the last bit would train different networks.
            weight: Tensor | None = data.ridge(part.weight.shape[1]).cpu() if self.trainer.is_global_zero else None
            part.set(self.trainer.strategy.broadcast(weight))  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class _Member:
    """Settings of one network, see `LSTMForecaster`."""

    cell: Literal["lstm", "gru"]
    width: int
    layers: int
    segment: int
    normalise: Literal["none", "last", "mean", "standard"]
    decoder: Literal["parallel", "last_hidden"]
    channel_independent: bool
    skip: Literal["none", "linear", "ridge"]
    dropout: float
    past: int

    def check(self, window: int, where: str) -> None:
        """Refuses values out of range; `where` is the YAML key up to the setting's name."""
        if self.width < 2 and (self.width or self.skip == "none"):
            raise UserError(f"{where}width is {self.width}: it must be 2 or more, or 0 where there is a skip.")
        if not 1 <= self.layers <= DEEPEST:
            raise UserError(f"{where}layers is {self.layers}: it must be from 1 to {DEEPEST}.")
        if not 1 <= self.past <= window:
            raise UserError(f"{where}past is {self.past}: it must be from 1 to the {window} rows of the data's window.")
        if not 1 <= self.segment <= self.past:
            raise UserError(f"{where}segment is {self.segment}: it must be from 1 to the {self.past} rows of the past.")
        if not 0 <= self.dropout < 1:
            raise UserError(f"{where}dropout is {self.dropout}: it must be at least 0 and below 1.")

    def network(self, horizon: int, channels: int, covariates: int, outputs: int) -> WindowForecast:
        """Builds it."""
        recurrent = None
        if self.width:
            recurrent = SegmentRNN(
                self.past, horizon, channels, covariates, self.cell, self.width, self.layers, self.segment,
                self.decoder, self.channel_independent, self.dropout, outputs,
                # What training starts from is the skip's forecast; not quite, or the layers below got no gradient.
                head_std=None if self.skip == "none" else 1e-3,
            )  # fmt: skip
        skip: nn.Module | None = None
        if self.skip == "ridge":
            skip = FixedMap(self.past, horizon)
        elif self.skip == "linear":
            skip = nn.Linear(self.past, horizon)
            nn.init.zeros_(skip.weight)
            nn.init.zeros_(skip.bias)
        return WindowForecast(recurrent, self.normalise, skip, self.past, self.past)


def _member(common: _Member, entry: dict[str, Any], where: str) -> _Member:
    """One member: what all have in common, but for what its entry says."""
    types = {field.name: type(getattr(common, field.name)) for field in fields(_Member)}
    choices = {
        "cell": ("lstm", "gru"), "normalise": ("none", "last", "mean", "standard"),
        "decoder": ("parallel", "last_hidden"), "skip": ("none", "linear", "ridge"),
    }  # fmt: skip
    for name, value in entry.items():
        if name not in types:
            raise UserError(f"{where}{name}: a member has no such setting, only {', '.join(types)}.")
        if name in choices and value not in choices[name]:
            raise UserError(f"{where}{name} is {value!r}: it must be one of {', '.join(choices[name])}.")
        if type(value) is not types[name] and not (name == "dropout" and type(value) is int):
            raise UserError(f"{where}{name} is {value!r}: it must be {types[name].__name__}.")
    return replace(common, **entry)
