"""Windows of a series as a deployed model takes them: rows in the units of the file."""

from typing import Any

import torch
from torch import Tensor

from litlab.data.series.metadata import SeriesMetadata
from litlab.data.serving import BATCH, Serving, TensorSpec


class SeriesServing(Serving):
    """Scales the rows of a window, and its forecast back.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "series"
    mean: Tensor
    scale: Tensor

    def __init__(self, metadata: SeriesMetadata) -> None:
        rows, horizon, columns = metadata.context_length, metadata.horizon, len(metadata.targets)
        inputs = [TensorSpec("past", "float64", (BATCH, rows, columns), "the last rows, a column for each target")]
        if metadata.covariates:
            what = f"sine and cosine of {', '.join(metadata.covariates)}, of past and future times"
            inputs.append(
                TensorSpec("calendar", "float32", (BATCH, rows + horizon, 2 * len(metadata.covariates)), what)
            )
        shape = (BATCH, horizon, columns)
        ends = "end of the interval; NaN where the run has none"
        super().__init__(
            inputs,
            [
                TensorSpec("forecast", "float64", shape, "the rows that follow, in the units of the past"),
                TensorSpec("lower", "float64", shape, f"lower {ends}"),
                TensorSpec("upper", "float64", shape, f"upper {ends}"),
            ],
        )
        self.metadata = metadata
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(metadata.scale, dtype=torch.float64))

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        """Return the scaled window, float32, and the calendar where there is one."""
        given = dict(zip((spec.name for spec in self.inputs), raw, strict=True))
        return {**given, "past": ((given["past"] - self.mean) / self.scale).float()}

    def decode(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return forecast and ends of its interval in the units of the file, each (batch, horizon, column)."""
        units = predicted.double() * self.scale[:, None] + self.mean[:, None]
        return tuple(units.unbind(dim=-1))

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the window in the units of the file, and the calendar where there is one."""
        past = batch["past"].double() * self.scale + self.mean
        return (past, batch["calendar"]) if "calendar" in batch else (past,)

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
        rows = self.metadata.context_length
        wave = torch.sin(torch.arange(rows, dtype=torch.float64) * (torch.pi / 12))[:, None]
        past = torch.stack([self.mean + wave * self.scale, self.mean - wave * self.scale])
        steps, features = rows + self.metadata.horizon, 2 * len(self.metadata.covariates)
        return (past, torch.zeros(2, steps, features)) if features else (past,)
