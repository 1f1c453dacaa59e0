"""A recurrent network that reads a window in segments and writes its forecast in segments."""

import math
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Cell = Literal["lstm", "gru"]
Decoder = Literal["parallel", "last_hidden"]


class SegmentRNN(nn.Module):
    """LSTM or GRU over segments of several rows, after SegRNN (Lin et al. 2023, arXiv:2308.11200).

    Reading a segment at a time makes the recurrence as many times shorter, and with it faster and
    easier to train. With one row per segment and the decoder `last_hidden` it is the plain
    recurrent forecaster: the rows go into the LSTM as they are, two linear layers follow its last
    hidden state.

    Args:
        context_length: Rows of the window. The oldest are left out where they fill no whole
            segment.
        horizon: Rows to forecast.
        channels: Channels of the series.
        covariates: Number of features that are known for past and future.
        cell: Kind of recurrent cell.
        hidden_size: Units of every layer.
        num_layers: Recurrent layers.
        segment_length: Rows read, and with the decoder `parallel` written, in one recurrent step.
        decoder: `parallel` takes one recurrent step for each output segment, all from the last
            state and with the same weights, told apart by a learned embedding of position and
            channel; `last_hidden` has two linear layers.
        channel_independent: Forecast each channel from itself alone, with the same weights; or all
            from all.
        head_hidden_size: Units of the hidden layer of the decoder `last_hidden`; 0: none, so that
            one linear layer is the head. Left out, as many as hidden_size.
        dropout: Probability of dropping a unit before the last linear layer, and between recurrent
            layers.
        outputs: Values for each row and channel, such as quantiles.
        head_std: Standard deviation of the last layer's weights at the start, for an output that
            starts near zero. Left out, torch's default.

    Raises:
        ValueError: If segment_length is above context_length, or head_hidden_size is for another
            decoder.
    """

    def __init__(
        self,
        context_length: int,
        horizon: int,
        channels: int = 1,
        covariates: int = 0,
        *,
        cell: Cell = "lstm",
        hidden_size: int = 64,
        num_layers: int = 1,
        segment_length: int = 24,
        decoder: Decoder = "parallel",
        channel_independent: bool = True,
        head_hidden_size: int | None = None,
        dropout: float = 0.0,
        outputs: int = 1,
        head_std: float | None = None,
    ) -> None:
        super().__init__()
        if decoder == "parallel" and head_hidden_size is not None:
            raise ValueError(
                f"head_hidden_size is {head_hidden_size}: it must be left out for the "
                "decoder parallel"
            )
        if segment_length > context_length:
            raise ValueError(
                f"segment_length is {segment_length}: it must be at most context_length, which is "
                f"{context_length}"
            )
        self.segment_length = segment_length
        self.rows = context_length // segment_length * segment_length
        # A group is what is read together: one channel, or all of them.
        self.groups, together = (channels, 1) if channel_independent else (1, channels)
        features = segment_length * (together + covariates)
        plain = segment_length == 1 and decoder == "last_hidden"
        self.embed = (
            nn.Identity() if plain else nn.Sequential(nn.Linear(features, hidden_size), nn.ReLU())
        )
        recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        between = dropout if num_layers > 1 else 0.0
        inputs = features if plain else hidden_size
        self.rnn = recurrent(inputs, hidden_size, num_layers, batch_first=True, dropout=between)
        if decoder == "parallel":
            self.decoder = ParallelDecoder(
                horizon,
                hidden_size,
                segment_length,
                self.groups,
                covariates,
                dropout,
                shape=(together, outputs),
            )
        else:
            units = hidden_size if head_hidden_size is None else head_hidden_size
            self.decoder = LastHiddenDecoder(
                horizon,
                hidden_size,
                units,
                self.groups,
                covariates,
                dropout,
                shape=(together, outputs),
            )
        if head_std is not None:
            nn.init.normal_(self.decoder.head.weight, std=head_std)
            nn.init.zeros_(self.decoder.head.bias)

    def forward(self, past: Tensor, covariates: Tensor | None = None) -> Tensor:
        """Forecast of shape (batch, horizon, channel, outputs).

        Args:
            past: Shape (batch, context_length, channel).
            covariates: Shape (batch, context_length + horizon, feature), where there are some.
        """
        length, future = past.shape[1], None
        past = past[:, length - self.rows :]
        if self.groups > 1:
            past = past.transpose(1, 2).flatten(0, 1).unsqueeze(-1)  # (batch * channel, row, 1)
        if covariates is not None:
            future = covariates[:, length:]
            rows = covariates[:, length - self.rows : length]
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
