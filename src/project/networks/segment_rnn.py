"""A recurrent network that reads a window in segments and writes its forecast in segments."""

import math
from contextlib import nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt
from project.networks.window_forecast import InstanceNorm, Skip, WindowForecast

Cell = Literal["lstm", "gru"]
Decoder = Literal["parallel", "last_hidden"]


class SegmentRNN(WindowForecast):
    """LSTM or GRU over segments of several rows, after SegRNN (Lin et al. 2023, arXiv:2308.11200),
    between reversible normalisation, and a linear skip beside it, see `WindowForecast`.

    By default it is a plain recurrent forecaster: the rows go into an LSTM, and two linear layers
    follow its last hidden state. Reading whole segments makes the recurrence shorter, and so faster
    and easier to train.

    Args:
        outputs: Values for each row and channel, such as quantiles.
        cell: Kind of recurrent cell.
        hidden_size: Units of every layer; 0: no recurrent network, only the skip.
        num_layers: Recurrent layers.
        segment_length: Rows that one recurrent step reads, and writes with the decoder `parallel`.
        instance_norm: Normalisation of each window and channel separately, reversed in the
            forecast: `subtract_last` subtracts the last value (NLinear, Zeng et al. 2023),
            `subtract_mean` the mean; `revin` divides by the standard deviation as well (RevIN, Kim
            et al. 2022).
        decoder: `parallel` takes one recurrent step for each output segment, all from the last
            state and with the same weights, told apart by a learned embedding of position and
            channel; `last_hidden` has two linear layers from the last hidden state.
        channel_independent: Whether each channel is forecast only from its own past, with the same
            weights, instead of all from all.
        head_hidden_size: Units of the hidden layer of the decoder `last_hidden`; 0: a single linear
            layer. By default hidden_size.
        skip: A linear map from window to forecast that is added. `linear` is trained with the rest;
            `ridge` is the closed-form solution on the training data and stays fixed, while the
            network learns its residuals.
        dropout: Probability of dropping a unit before the last linear layer, and between recurrent
            layers.
        last_rows: How many of the window's last rows are read, by default all. The oldest rows are
            skipped if they don't fill a segment.
        context_length: Rows of the window. Taken from the data when left out.
        horizon: Rows to forecast. Taken from the data when left out.
        num_targets: Channels of the series. Taken from the data when left out.
        num_covariates: Features that are known for past and future. Taken from the data when left
            out; none where the data has none.

    Raises:
        UserError: If a value does not fit the others, or is neither set nor provided by the data.
    """

    def __init__(
        self,
        outputs: int = 1,
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
        last_rows: PositiveInt | None = None,
        context_length: PositiveInt | None = None,
        horizon: PositiveInt | None = None,
        num_targets: int | None = None,
        num_covariates: int | None = None,
    ) -> None:
        if context_length is None or horizon is None or num_targets is None:
            raise UserError(
                "model.network: context_length, horizon and num_targets are not all set, and the "
                "data does not provide them; set them or use SeriesData"
            )
        rows = last_rows or context_length
        if rows > context_length:
            raise UserError(
                f"model.network.last_rows: {rows} is more than the window's {context_length} rows; "
                "lower it, or raise data.context_length"
            )
        if hidden_size and segment_length > rows:
            raise UserError(
                f"model.network.segment_length: {segment_length} is more than the {rows} rows that "
                "are read; lower it"
            )
        if decoder == "parallel" and head_hidden_size is not None:
            raise UserError(
                "model.network.head_hidden_size: decoder: parallel has no hidden layer; leave it "
                "out"
            )
        if hidden_size == 0 and skip == "none":
            raise UserError(
                "model.network.hidden_size: 0 leaves only the skip, and there is none; set a skip"
            )
        super().__init__(rows, horizon, instance_norm, skip)
        self.segment_length = segment_length
        # A group is what is read together: one channel, or all of them.
        covariates = num_covariates or 0
        self.groups, together = (num_targets, 1) if channel_independent else (1, num_targets)
        self.rnn: nn.Module | None = None
        if hidden_size == 0:
            return

        features = segment_length * (together + covariates)
        plain = segment_length == 1 and decoder == "last_hidden"
        self.embed = (
            nn.Identity() if plain else nn.Sequential(nn.Linear(features, hidden_size), nn.ReLU())
        )
        recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        between = dropout if num_layers > 1 else 0.0
        inputs = features if plain else hidden_size
        self.rnn = recurrent(inputs, hidden_size, num_layers, batch_first=True, dropout=between)
        shape = together, outputs
        if decoder == "parallel":
            self.decoder: Any = ParallelDecoder(
                horizon, hidden_size, segment_length, self.groups, covariates, dropout, shape
            )
        else:
            units = hidden_size if head_hidden_size is None else head_hidden_size
            self.decoder = LastHiddenDecoder(
                horizon, hidden_size, units, self.groups, covariates, dropout, shape
            )
        if skip != "none":
            # What training starts from is the skip's forecast; not quite, or the layers below got
            # no gradient.
            nn.init.normal_(self.decoder.head.weight, std=1e-3)
            nn.init.zeros_(self.decoder.head.bias)

    def forecast(self, past: Tensor, covariates: Tensor | None = None) -> Tensor:
        if self.rnn is None:
            return past.new_zeros(())
        length, future = past.shape[1], None
        whole = length // self.segment_length * self.segment_length
        past = past[:, length - whole :]
        if self.groups > 1:
            past = past.transpose(1, 2).flatten(0, 1).unsqueeze(-1)  # (batch * channel, row, 1)
        if covariates is not None:
            future = covariates[:, length:]
            rows = covariates[:, length - whole : length]
            past = torch.cat([past, rows.repeat_interleave(self.groups, dim=0)], dim=-1)
        segments = past.reshape(past.shape[0], -1, self.segment_length * past.shape[-1])
        half_on_cpu = past.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        # CPUs without units for bfloat16 have no LSTM in it (oneDNN).
        with torch.autocast("cpu", enabled=False) if half_on_cpu else nullcontext():
            _, state = self.rnn(self.embed(segments))
            # (batch, group, horizon, channels of a group, outputs)
            decoded = self.decoder(self.rnn, state, future)
        return decoded.transpose(1, 2).flatten(2, 3)


class ParallelDecoder(nn.Module):
    """One recurrent step from the last state for each output segment, all at once.

    Arguments as in ``SegmentRNN``; `shape` is (channels of a group, outputs). The embeddings of
    position and channel have half of the units each, and all are the position's where all channels
    are read together. The covariates of the segment are added to them by a linear layer.
    """

    def __init__(
        self,
        horizon: int,
        hidden_size: int,
        segment_length: int,
        groups: int,
        covariates: int,
        dropout: float,
        shape: tuple[int, int],
    ) -> None:
        super().__init__()
        self.horizon, self.segment_length, self.shape = horizon, segment_length, shape
        self.steps = math.ceil(horizon / segment_length)
        half = hidden_size // 2 if groups > 1 else 0
        self.position = nn.Parameter(torch.randn(self.steps, hidden_size - half))
        self.channel = nn.Parameter(torch.randn(groups, half)) if groups > 1 else None
        features = segment_length * covariates
        self.covariates = nn.Linear(features, hidden_size) if covariates else None
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden_size, segment_length * math.prod(shape))

    def forward(
        self, rnn: nn.Module, state: Tensor | tuple[Tensor, Tensor], covariates: Tensor | None
    ) -> Tensor:
        """Shape (batch, group, horizon, channels of a group, outputs)."""
        queries = self.position.unsqueeze(0)  # (1 or batch, group, step, hidden_size) in the end
        if self.channel is not None:
            groups = len(self.channel)
            position = self.position.expand(groups, -1, -1)
            queries = torch.cat(
                [position, self.channel.unsqueeze(1).expand(-1, self.steps, -1)], dim=-1
            )
        queries = queries.unsqueeze(0)
        if self.covariates is not None and covariates is not None:
            # Rows of the last segment beyond the horizon
            missing = self.steps * self.segment_length - self.horizon
            padded = F.pad(covariates, (0, 0, 0, missing))
            queries = queries + self.covariates(padded.reshape(padded.shape[0], 1, self.steps, -1))
        # (layer, batch * group, hidden_size)
        hidden = state[0] if isinstance(state, tuple) else state
        batch, groups = hidden.shape[1] // queries.shape[1], queries.shape[1]
        queries = queries.expand(batch, -1, -1, -1).reshape(batch * groups * self.steps, 1, -1)
        if isinstance(state, tuple):
            state = (
                state[0].repeat_interleave(self.steps, dim=1),
                state[1].repeat_interleave(self.steps, dim=1),
            )
        else:
            state = state.repeat_interleave(self.steps, dim=1)
        decoded, _ = rnn(queries, state)
        rows = self.head(self.dropout(decoded)).reshape(batch, groups, -1, *self.shape)
        return rows[:, :, : self.horizon]


class LastHiddenDecoder(nn.Module):
    """One or two linear layers from the last hidden state and, where there are covariates, the
    covariates of the horizon.

    Arguments as in ``SegmentRNN``; `units` of the first layer, 0 for none; `shape` is (channels of
    a group, outputs).
    """

    def __init__(
        self,
        horizon: int,
        hidden_size: int,
        units: int,
        groups: int,
        covariates: int,
        dropout: float,
        shape: tuple[int, int],
    ) -> None:
        super().__init__()
        self.groups, self.shape = groups, (horizon, *shape)
        inputs = hidden_size + horizon * covariates
        self.hidden = nn.Sequential(nn.Linear(inputs, units), nn.ReLU()) if units else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(units or inputs, math.prod(self.shape))

    def forward(
        self, rnn: nn.Module, state: Tensor | tuple[Tensor, Tensor], covariates: Tensor | None
    ) -> Tensor:
        """Shape (batch, group, horizon, channels of a group, outputs)."""
        last = (state[0] if isinstance(state, tuple) else state)[-1]
        if covariates is not None:
            last = torch.cat(
                [last, covariates.flatten(1).repeat_interleave(self.groups, dim=0)], dim=-1
            )
        rows = self.head(self.dropout(self.hidden(last)))
        return rows.reshape(-1, self.groups, *self.shape)
