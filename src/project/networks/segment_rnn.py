"""A recurrent network that reads a window in segments and writes its forecast in segments."""

import math
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.nn import check_sizes


class SegmentRNN(nn.Module):
    """LSTM or GRU over segments of several rows, after SegRNN (Lin et al. 2023, arXiv:2308.11200).

    Reading a segment at a time makes the recurrence as many times shorter, and with it faster and easier to train. With
    one row per segment and the decoder `last_hidden` it is the plain recurrent forecaster: the rows go into the LSTM as
    they are, two linear layers follow its last hidden state.

    Args:
        past: Rows of the window. The oldest are left out where they fill no whole segment.
        horizon: Rows to forecast.
        channels: Channels of the series.
        covariates: Features of the calendar, which is known for past and future.
        cell: Kind of recurrent cell.
        width: Units of every layer.
        layers: Recurrent layers.
        segment: Rows read, and with the decoder `parallel` written, in one recurrent step.
        decoder: `parallel` takes one recurrent step for each output segment, all from the last state and with the same
            weights, told apart by a learned embedding of position and channel; `last_hidden` has two linear layers.
        channel_independent: Forecast each channel from itself alone, with the same weights; or all from all.
        dropout: Probability of dropping a unit before the last linear layer, and between recurrent layers.
        outputs: Values for each row and channel, such as quantiles.
        head_std: Standard deviation of the last layer's weights at the start, for an output that starts near zero.
            Left out, torch's default.

    Raises:
        ValueError: If a size is too small, or segment larger than past.
    """

    def __init__(
        self,
        past: int,
        horizon: int,
        channels: int = 1,
        covariates: int = 0,
        cell: Literal["lstm", "gru"] = "lstm",
        width: int = 64,
        layers: int = 1,
        segment: int = 24,
        decoder: Literal["parallel", "last_hidden"] = "parallel",
        channel_independent: bool = True,
        dropout: float = 0.0,
        outputs: int = 1,
        head_std: float | None = None,
    ) -> None:
        super().__init__()
        check_sizes(past=past, horizon=horizon, channels=channels, layers=layers, segment=segment, outputs=outputs)
        check_sizes(2, width=width)  # half of it is the position's, half the channel's
        check_sizes(0, covariates=covariates)
        if segment > past:
            raise ValueError(f"segment is {segment}: it must be at most past, which is {past}")
        self.segment = segment
        self.rows = past // segment * segment
        # A group is what is read together: one channel, or all of them.
        self.groups, together = (channels, 1) if channel_independent else (1, channels)
        features = segment * (together + covariates)
        plain = segment == 1 and decoder == "last_hidden"
        self.embed = nn.Identity() if plain else nn.Sequential(nn.Linear(features, width), nn.ReLU())
        recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        between = dropout if layers > 1 else 0.0
        self.rnn = recurrent(features if plain else width, width, layers, batch_first=True, dropout=between)
        decoders = {"parallel": ParallelDecoder, "last_hidden": LastHiddenDecoder}
        self.decoder = decoders[decoder](
            horizon, width, segment, self.groups, covariates, dropout, shape=(together, outputs)
        )
        if head_std is not None:
            nn.init.normal_(self.decoder.head.weight, std=head_std)
            nn.init.zeros_(self.decoder.head.bias)

    def forward(self, past: Tensor, calendar: Tensor | None = None) -> Tensor:
        """Forecast of shape (batch, horizon, channel, outputs).

        Args:
            past: Shape (batch, past, channel).
            calendar: Shape (batch, past + horizon, feature), where there are covariates.
        """
        length, future = past.shape[1], None
        past = past[:, length - self.rows :]
        if self.groups > 1:
            past = past.transpose(1, 2).flatten(0, 1).unsqueeze(-1)  # (batch * channel, row, 1)
        if calendar is not None:
            future = calendar[:, length:]
            rows = calendar[:, length - self.rows : length]
            past = torch.cat([past, rows.repeat_interleave(self.groups, dim=0)], dim=-1)
        segments = past.reshape(len(past), -1, self.segment * past.shape[-1])
        half_on_cpu = past.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        # CPUs without units for bfloat16 have no LSTM in it (oneDNN).
        with torch.autocast("cpu", enabled=False) if half_on_cpu else nullcontext():
            _, state = self.rnn(self.embed(segments))
            decoded = self.decoder(self.rnn, state, future)  # (batch, group, horizon, channels of a group, outputs)
        return decoded.transpose(1, 2).flatten(2, 3)


class ParallelDecoder(nn.Module):
    """One recurrent step from the last state for each output segment, all at once.

    Arguments as in ``SegmentRNN``; `shape` is (channels of a group, outputs). The embeddings of position and channel
    have half of the units each, and all are the position's where all channels are read together. The calendar of the
    segment is added to them by a linear layer.
    """

    def __init__(
        self,
        horizon: int,
        width: int,
        segment: int,
        groups: int,
        covariates: int,
        dropout: float,
        shape: tuple[int, int],
    ) -> None:
        super().__init__()
        self.horizon, self.segment, self.shape = horizon, segment, shape
        self.steps = math.ceil(horizon / segment)
        half = width // 2 if groups > 1 else 0
        self.position = nn.Parameter(torch.randn(self.steps, width - half))
        self.channel = nn.Parameter(torch.randn(groups, half)) if groups > 1 else None
        self.calendar = nn.Linear(segment * covariates, width) if covariates else None
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, segment * math.prod(shape))

    def forward(self, rnn: nn.Module, state: Tensor | tuple[Tensor, Tensor], calendar: Tensor | None) -> Tensor:
        """Shape (batch, group, horizon, channels of a group, outputs)."""
        queries = self.position.unsqueeze(0)  # (1 or batch, group, step, width) in the end
        if self.channel is not None:
            groups = len(self.channel)
            position = self.position.expand(groups, -1, -1)
            queries = torch.cat([position, self.channel.unsqueeze(1).expand(-1, self.steps, -1)], dim=-1)
        queries = queries.unsqueeze(0)
        if self.calendar is not None and calendar is not None:
            missing = self.steps * self.segment - self.horizon  # rows of the last segment beyond the horizon
            padded = F.pad(calendar, (0, 0, 0, missing))
            queries = queries + self.calendar(padded.reshape(len(padded), 1, self.steps, -1))
        hidden = state[0] if isinstance(state, tuple) else state  # (layer, batch * group, width)
        batch, groups = hidden.shape[1] // queries.shape[1], queries.shape[1]
        queries = queries.expand(batch, -1, -1, -1).reshape(batch * groups * self.steps, 1, -1)
        if isinstance(state, tuple):
            state = (state[0].repeat_interleave(self.steps, dim=1), state[1].repeat_interleave(self.steps, dim=1))
        else:
            state = state.repeat_interleave(self.steps, dim=1)
        decoded, _ = rnn(queries, state)
        rows = self.head(self.dropout(decoded)).reshape(batch, groups, -1, *self.shape)
        return rows[:, :, : self.horizon]


class LastHiddenDecoder(nn.Module):
    """Two linear layers from the last hidden state and, where there are covariates, the calendar of the horizon.

    Arguments as in ``SegmentRNN``; `shape` is (channels of a group, outputs).
    """

    def __init__(
        self,
        horizon: int,
        width: int,
        segment: int,
        groups: int,
        covariates: int,
        dropout: float,
        shape: tuple[int, int],
    ) -> None:
        super().__init__()
        self.groups, self.shape = groups, (horizon, *shape)
        self.hidden = nn.Linear(width + horizon * covariates, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, math.prod(self.shape))

    def forward(self, rnn: nn.Module, state: Tensor | tuple[Tensor, Tensor], calendar: Tensor | None) -> Tensor:
        """Shape (batch, group, horizon, channels of a group, outputs)."""
        last = (state[0] if isinstance(state, tuple) else state)[-1]
        if calendar is not None:
            last = torch.cat([last, calendar.flatten(1).repeat_interleave(self.groups, dim=0)], dim=-1)
        rows = self.head(self.dropout(self.hidden(last).relu()))
        return rows.reshape(-1, self.groups, *self.shape)
