"""Windows of series as a deployed model takes them: in the units of the file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.regular import read_last_rows
from litlab.data.serving import BATCH, Sample, Serving, TensorSpec, make_times, read_rows
from litlab.errors import UserError

MOST_ROWS = 50_000  # that are sent


class SeriesServing(Serving):
    """Scales the rows of a window and its covariates, and the forecast back.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind, field, metadata_type = "series", "series", SeriesMetadata
    mean: Tensor
    scale: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, metadata: SeriesMetadata) -> None:
        # What goes in: the past, and covariates of past and future
        count, horizon, columns = metadata.context_length, metadata.horizon, len(metadata.targets)
        meaning = "the last rows, a column for each target"
        inputs = [TensorSpec("past", "float64", (BATCH, count, columns), meaning)]
        if metadata.covariates:
            meaning = f"of past and future rows: {', '.join(metadata.features)}"
            shape = (BATCH, count + horizon, metadata.num_covariates)
            inputs.append(TensorSpec("covariates", "float64", shape, meaning))

        # What comes out
        outputs = {
            "forecast": "the rows that follow, in the units of the past",
            "lower": "lower end of the interval; NaN where the run has none",
            "upper": "upper end of the interval; NaN where the run has none",
        }
        shape = (BATCH, horizon, columns)
        super().__init__(
            inputs,
            [TensorSpec(name, "float64", shape, meaning) for name, meaning in outputs.items()],
        )
        self.metadata = metadata

        # Buffers of the graph; angles and categories have a scale that leaves them as they are
        scales = [metadata.numbers.get(name, [0.0, 1.0]) for name in metadata.features]
        centre, spread = np.array(scales).reshape(-1, 2).T
        self.register_numbers(mean=metadata.mean, scale=metadata.scale)
        self.register_numbers(centre=centre, spread=spread)

    def encode(self, past: Tensor, covariates: Tensor | None = None) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the scaled window and the scaled covariates where there are some, float32."""
        batch = {"past": ((past - self.mean) / self.scale).float()}
        if covariates is not None:
            batch["covariates"] = ((covariates - self.centre) / self.spread).float()
        return batch

    def decode(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return forecast and ends of its interval in the units of the file, each (batch, horizon,
        column).
        """
        # float64, as differences of large numbers have no digits in float32
        return tuple(
            values.double() * self.scale + self.mean for values in predicted.unbind(dim=-1)
        )

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the window, and the covariates where there are some, in the units of the file."""
        past = batch["past"].double() * self.scale + self.mean
        if "covariates" not in batch:
            return (past,)
        return past, batch["covariates"].double() * self.spread + self.centre

    def predicted(self, outputs: Any) -> Tensor:
        """Return forecast and ends of its interval, scaled, float32 (batch, horizon, column, 3)."""
        scaled = [(values - self.mean) / self.scale for values in outputs]
        return torch.stack(scaled, dim=-1).float()

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the scaled future."""
        return batch["future"]

    def read(self, sent: Any) -> Sample:
        """Read the last rows of a series; and where columns are told of the future, those that
        follow, without targets.

        The context is what an answer repeats, and the times that follow.
        """
        metadata = self.metadata
        count, name = metadata.context_length, metadata.series_column
        # A series needs no name, but where that is a covariate
        optional = None if name in metadata.covariates else name
        cells = read_rows(sent, metadata, "series", MOST_ROWS, optional)
        is_named = name in cells
        if name and not is_named:  # reading needs one
            cells[name] = "the series"
        series = read_last_rows(cells, metadata, "series")
        names = series.table.index.unique(0)
        if len(names) > 1:
            raise UserError(f"series: there are {len(names)} of them; send one at a time")

        # A batch of one; the answer repeats the past, so that a page can draw both
        values, *covariates = (array.numpy() for array in metadata.arrange_inputs(series.table))
        times = series.times.astype(str).tolist()
        past = {"times": times[:count], "values": self._name_columns(values[:count])}
        context = {name: names[0]} if is_named else {}
        context |= {"times": times[count:], "past": past}
        return Sample([array[None] for array in (values[:count], *covariates)], context)

    def sample_request(self) -> list[dict[str, Any]]:
        """Return a wave around the mean of each column, and where columns are told what is usual
        in them.
        """
        metadata = self.metadata
        usual = {name: mean for name, (mean, _) in metadata.numbers.items()}
        usual |= {name: texts[0] for name, texts in metadata.categories.items()}
        zone = next(column.zone for column in metadata.columns if column.kind == "time")
        waves = np.sin(np.arange(metadata.context_length))[:, None] * metadata.scale + metadata.mean
        # Rows of the past, then those of the future, whose targets are not known
        rows = [*waves.tolist(), *[[None] * metadata.num_targets] * metadata.horizon]
        times = make_times(zone, metadata.form, len(rows), metadata.freq)
        return [
            {metadata.time_column: time, **usual, **dict(zip(metadata.targets, row, strict=True))}
            for time, row in zip(times, rows, strict=True)
        ]

    def answer(self, outputs: Mapping[str, np.ndarray], context: dict[str, Any]) -> dict[str, Any]:
        """Return times, past and forecast; the ends of the interval are null where the run has
        none.
        """
        return context | {
            name: self._name_columns(values[0]) if np.isfinite(values).all() else None
            for name, values in outputs.items()
        }

    def _name_columns(self, values: np.ndarray) -> dict[str, list[float]]:
        return dict(zip(self.metadata.targets, values.T.tolist(), strict=True))
