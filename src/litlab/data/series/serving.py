"""What a checkpoint knows of its series, and windows as a deployed model takes them: rows in the units of the file."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from litlab.data.metadata import Metadata
from litlab.data.series.calendar import Covariate
from litlab.data.serving import BATCH, Serving, TensorSpec


@dataclass(frozen=True)
class SeriesMetadata(Metadata):
    """Metadata of a series, or of several in one file.

    Args:
        targets: Names of the columns to forecast: the channels.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        covariates: Calendar features that the model gets.
        time_column: Column of the times.
        series_column: Column that tells which series a row belongs to; None: there is one.
        freq: Time from row to row, a pandas offset alias.
        season: Rows of a season.
        mean: Mean of each channel in the training rows.
        scale: Standard deviation of each channel, likewise.
        naive_error: Mean absolute error of the seasonal naive forecast in the training rows, scaled, for each channel.
        generated: Whether the series is made up.
    """

    fixed: ClassVar[tuple[str, ...]] = ("targets", "context_length", "horizon", "covariates", "freq", "season")
    targets: list[str]
    context_length: int
    horizon: int
    covariates: list[Covariate]
    time_column: str
    series_column: str | None
    freq: str
    season: int
    mean: list[float]
    scale: list[float]
    naive_error: list[float]
    generated: bool


class SeriesServing(Serving):
    """Scales the rows of a window, and its forecast back.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "series"
    mean: Tensor
    scale: Tensor

    def __init__(self, metadata: SeriesMetadata) -> None:
        self.rows, horizon, columns = metadata.context_length, metadata.horizon, len(metadata.targets)
        features = 2 * len(metadata.covariates)
        inputs = [TensorSpec("past", "float64", (BATCH, self.rows, columns), "the last rows, a column for each target")]
        if features:
            what = f"sine and cosine of {', '.join(metadata.covariates)}, of past and future times"
            inputs.append(TensorSpec("calendar", "float32", (BATCH, self.rows + horizon, features), what))
        meanings = {
            "forecast": "the rows that follow, in the units of the past",
            "lower": "lower end of the interval; NaN where the run has none",
            "upper": "upper end of the interval; NaN where the run has none",
        }
        shape = (BATCH, horizon, columns)
        super().__init__(inputs, [TensorSpec(name, "float64", shape, what) for name, what in meanings.items()])
        self.metadata = metadata
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(metadata.scale, dtype=torch.float64))

    def encode(self, past: Tensor, *calendar: Tensor) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the scaled window, float32, and the calendar where there is one."""
        batch = {"past": ((past - self.mean) / self.scale).float()}
        return batch | dict(zip(("calendar",), calendar, strict=False))

    def decode(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return forecast and ends of its interval in the units of the file, each (batch, horizon, column)."""
        units = predicted.double() * self.scale[:, None] + self.mean[:, None]
        return tuple(units.unbind(dim=-1))

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the window in the units of the file, and the calendar where there is one."""
        past = batch["past"].double() * self.scale + self.mean
        return past, *(batch[spec.name] for spec in self.inputs[1:])

    def predicted(self, outputs: Any) -> Tensor:
        """Return forecast and ends of its interval, scaled, float32 (batch, horizon, column, 3)."""
        return ((torch.stack(list(outputs), dim=-1) - self.mean[:, None]) / self.scale[:, None]).float()

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the scaled future."""
        return batch["future"]

    def facts(self) -> dict[str, Any]:
        """Return the metadata: the columns in order, their scales, how many rows come in and out, the step, ..."""
        return self.metadata.state_dict()

    def unit(self) -> Tensor:
        """Return the standard deviation of each column, (column,)."""
        return self.scale

    def example(self) -> tuple[Tensor, ...]:
        """Return a wave around the mean of each column, and the same upside down."""
        wave = torch.sin(torch.arange(self.rows) / 4)[:, None] * self.scale
        past = torch.stack([self.mean + wave, self.mean - wave])
        return past, *(torch.zeros(2, *map(int, spec.shape[1:])) for spec in self.inputs[1:])
