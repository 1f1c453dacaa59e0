"""What a checkpoint knows of its series, and windows as a deployed model takes them: in the units
of the file.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from litlab.data.columns import count_unknown
from litlab.data.files import FileFormat, Frame, Policy
from litlab.data.serving import BATCH, Serving, TensorSpec
from litlab.data.target import TargetMetadata

CALENDAR = ("minute", "hour", "weekday", "day", "month")


@dataclass(frozen=True, kw_only=True)
class SeriesMetadata(TargetMetadata):
    """Metadata of a series, or of several in one file; what is measured is that of the training
    rows.

    Args:
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        covariates: Calendar features and columns that the model is told, the calendar first.
        time_column: Column of the times.
        series_column: Column that tells which series a row belongs to; None: there is one.
        freq: Time from row to row, a pandas offset alias; None: it is to be found.
        static: Columns among the covariates that are constant in each series; None: they are to be
            found.
        numbers: Mean and standard deviation of each column of numbers among the covariates.
        categories: The categories of each other column among them.
        season: Rows of a season.
        naive_error: Mean absolute error of the seasonal naive forecast, scaled, for each channel.
        generated: Whether the series is made up.
    """

    fixed: ClassVar[tuple[str, ...]] = (
        "targets",
        "context_length",
        "horizon",
        "covariates",
        "categories",
        "freq",
        "season",
    )
    context_length: int
    horizon: int
    covariates: list[str]
    time_column: str
    series_column: str | None
    freq: str | None
    static: list[str] | None
    numbers: dict[str, list[float]]
    categories: dict[str, list[str]]
    season: int
    naive_error: list[float]
    generated: bool

    def read(
        self, raw: Frame, where: str, form: FileFormat | None = None, bad_rows: Policy = "error"
    ) -> Frame:
        """Read rows as `TargetMetadata.read`; say which categories are new."""
        rows = super().read(raw, where, form, bad_rows)
        for name, texts in self.categories.items():
            count_unknown(rows[name], texts, where)
        return rows

    @property
    def needed(self) -> list[str]:
        return [name for name in (self.time_column, self.series_column) if name is not None]

    @property
    def calendar(self) -> list[str]:
        return [name for name in self.covariates if name in CALENDAR]

    @property
    def covariate_columns(self) -> list[str]:
        return [name for name in self.covariates if name not in CALENDAR]

    @property
    def features(self) -> list[str]:
        """What each covariate that the network gets is."""
        angles = [f"{part} of {name}" for name in self.calendar for part in ("sine", "cosine")]
        for name in self.covariate_columns:
            texts = self.categories.get(name)
            angles += [name] if texts is None else [f"{name} is {text}" for text in texts]
        return angles

    @property
    def num_covariates(self) -> int:
        return len(self.features)

    @property
    def mean(self) -> list[float]:
        return self.target_mean

    @property
    def scale(self) -> list[float]:
        return self.target_std

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    def lay_out(self, table: Frame) -> list[Tensor]:
        """Lay rows out as a deployed model takes them.

        Args:
            table: As of `Series`.

        Returns:
            The targets, float64 (time, channel), and where there are some the covariates, (time,
            feature): calendar, numbers as they are, and 1 for the category that a row has, 0 for
            each other.
        """
        targets = torch.tensor(table[self.targets].to_numpy())
        if not self.covariates:
            return [targets]
        parts = [make_calendar(table.index.get_level_values(1), self.calendar)]
        for name in self.covariate_columns:
            texts = self.categories.get(name)
            if texts is None:
                parts.append(table[[name]].to_numpy())
            else:  # a missing category is none of them
                parts.append(table[[name]].fillna("").to_numpy(object) == np.array(texts, object))
        return [targets, torch.from_numpy(np.concatenate(parts, axis=1, dtype="float64"))]


def make_calendar(times: Any, names: list[str]) -> np.ndarray:
    """Tell where each time is in its hour, day, week, month or year.

    Each feature is an angle, given by its sine and cosine, so that 23 h is as near to 0 h as 1 h
    is.

    Args:
        times: The times, a DatetimeIndex.
        names: `minute` of the hour, `hour` of the day, `weekday` (from Monday), `day` of the month
            (a month's length is a full turn), `month` of the year.

    Returns:
        (time, 2 x names): sine and cosine of the first one, of the second, ...
    """
    shares = {
        "minute": times.minute / 60,
        "hour": times.hour / 24,
        "weekday": times.day_of_week / 7,
        "day": (times.day - 1) / times.days_in_month,
        "month": (times.month - 1) / 12,
    }
    angles = 2 * np.pi * np.array([shares[name] for name in names]).reshape(-1, len(times)).T
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(times), -1)


class SeriesServing(Serving):
    """Scales the rows of a window and its covariates, and the forecast back.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "series"
    mean: Tensor
    scale: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, metadata: SeriesMetadata) -> None:
        rows, horizon, columns = metadata.context_length, metadata.horizon, len(metadata.targets)
        inputs = [
            TensorSpec(
                "past", "float64", (BATCH, rows, columns), "the last rows, a column for each target"
            )
        ]
        if metadata.covariates:
            what = f"of past and future rows: {', '.join(metadata.features)}"
            shape = (BATCH, rows + horizon, metadata.num_covariates)
            inputs.append(TensorSpec("covariates", "float64", shape, what))
        meanings = {
            "forecast": "the rows that follow, in the units of the past",
            "lower": "lower end of the interval; NaN where the run has none",
            "upper": "upper end of the interval; NaN where the run has none",
        }
        shape = (BATCH, horizon, columns)
        super().__init__(
            inputs, [TensorSpec(name, "float64", shape, what) for name, what in meanings.items()]
        )
        self.metadata = metadata
        # Angles and categories stay as they are
        scales = [metadata.numbers.get(name, [0.0, 1.0]) for name in metadata.features]
        numbers = {
            "mean": metadata.mean,
            "scale": metadata.scale,
            "centre": [mean for mean, _ in scales],
            "spread": [scale for _, scale in scales],
        }
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

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
        return tuple(part.double() * self.scale + self.mean for part in predicted.unbind(dim=-1))

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the window, and the covariates where there are some, in the units of the file."""
        past = batch["past"].double() * self.scale + self.mean
        if "covariates" not in batch:
            return (past,)
        return past, batch["covariates"].double() * self.spread + self.centre

    def predicted(self, outputs: Any) -> Tensor:
        """Return forecast and ends of its interval, scaled, float32 (batch, horizon, column, 3)."""
        return torch.stack([(part - self.mean) / self.scale for part in outputs], dim=-1).float()

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the scaled future."""
        return batch["future"]

    def facts(self) -> dict[str, Any]:
        """Return the metadata: the columns and their scales, how many rows come in and out, ..."""
        return self.metadata.state_dict()

    def unit(self) -> Tensor:
        """Return the standard deviation of each column, (column,)."""
        return self.scale

    def example(self) -> tuple[Tensor, ...]:
        """Return two stretches of a wave around the mean of each column, the same each time."""
        wave, *covariates = (torch.zeros(2, *map(int, spec.shape[1:])) for spec in self.inputs)
        wave += torch.arange(wave[..., 0].numel()).sin().view(2, -1, 1)
        return wave * self.scale + self.mean, *(part + self.centre for part in covariates)
