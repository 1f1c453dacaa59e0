"""Between the rows of a file and a model: scales, calendar, and what a checkpoint knows of its
series.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from litlab.data.series.regular import Series
from litlab.data.serving import BATCH, Metadata, Serving, TensorSpec
from litlab.errors import UserError

Covariate = Literal["minute", "hour", "weekday", "day", "month"]
_SEASONS = {"B": 5, "D": 7, "W": 52, "MS": 12, "ME": 12, "QS": 4, "QE": 4}
_LARGEST = 1e36  # range of a column: scales are float32 in places


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
        naive_error: Mean absolute error of the seasonal naive forecast in the training rows,
            scaled, for each channel.
        generated: Whether the series is made up.
    """

    fixed: ClassVar[tuple[str, ...]] = (
        "targets",
        "context_length",
        "horizon",
        "covariates",
        "freq",
        "season",
    )
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

    @property
    def target_names(self) -> list[str]:
        return self.targets

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    @property
    def num_covariates(self) -> int:
        return 2 * len(self.covariates)


def measure(series: Series, split: np.ndarray, season: int | None) -> dict[str, Any]:
    """Measure the training rows of all series together.

    Args:
        series: The series.
        split: As of `split_rows`.
        season: Rows of a season; None: what is usual for the step. It is 1 where no series has two
            in training.

    Returns:
        ``season``; and for each column ``mean``, ``scale`` (the standard deviation) and
        ``naive_error``: mean absolute difference, scaled, to the row one season before, which MASE
        divides by (Hyndman & Koehler 2006).

    Raises:
        UserError: A column never changes, or its numbers are too large or too small.
    """
    train = series.table[split == "train"]
    parts = train.groupby(level=0)
    season = season or find_season(series.freq)
    if 2 * season > parts.size().max():
        season = 1

    values = np.ascontiguousarray(train)
    extent = np.ptp(values, axis=0)
    wrong = train.columns[(extent < 1 / _LARGEST) | (extent > _LARGEST)]
    if len(wrong):
        raise UserError(
            f"data.targets: column {wrong[0]!r} can't be scaled, its training rows are all the "
            "same, or too large or small; correct it, or leave it out"
        )
    mean, scale = values.mean(0), values.std(0)
    changes = abs(np.ascontiguousarray(parts.diff(season).dropna()))
    naive_error = changes.mean(0) / scale
    return {
        "season": season,
        "mean": mean.tolist(),
        "scale": scale.tolist(),
        "naive_error": naive_error.tolist(),
    }


def find_season(freq: str) -> int:
    """Return the rows of the season that is usual for a step: a day, a week of days, a year of
    weeks or months.
    """
    import pandas as pd

    day = pd.date_range("2024-01-01", "2024-01-02", freq=freq, inclusive="left")
    return _SEASONS.get(freq.partition("-")[0]) or len(day) or 1


def make_calendar(times: Any, covariates: list[Covariate]) -> Tensor:
    """Tell where each time is in its hour, day, week, month or year: what is known of the future.

    Each covariate is an angle, given by its sine and cosine, so that 23 h is as near to 0 h as 1 h
    is.

    Args:
        times: The times, a DatetimeIndex.
        covariates: `minute` of the hour, `hour` of the day, `weekday` (from Monday), `day` of the
            month (a month's length is a full turn), `month` of the year.

    Returns:
        float32 (time, 2 x covariates): sine and cosine of the first covariate, of the second, ...
    """
    shares = {
        "minute": times.minute / 60,
        "hour": times.hour / 24,
        "weekday": times.day_of_week / 7,
        "day": (times.day - 1) / times.days_in_month,
        "month": (times.month - 1) / 12,
    }
    angles = 2 * np.pi * np.stack([shares[name] for name in covariates], axis=1)
    features = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return torch.from_numpy(features.reshape(len(times), -1)).float()


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
        inputs = [
            TensorSpec(
                "past", "float64", (BATCH, rows, columns), "the last rows, a column for each target"
            )
        ]
        if metadata.covariates:
            what = f"sine and cosine of {', '.join(metadata.covariates)}, of past and future times"
            shape = (BATCH, rows + horizon, 2 * len(metadata.covariates))
            inputs.append(TensorSpec("calendar", "float32", shape, what))
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
        self.register_buffer("mean", torch.tensor(metadata.mean, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(metadata.scale, dtype=torch.float64))

    def encode(self, past: Tensor, calendar: Tensor | None = None) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the scaled window, float32, and the calendar where there is one."""
        batch = {"past": ((past - self.mean) / self.scale).float()}
        return batch if calendar is None else batch | {"calendar": calendar}

    def decode(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return forecast and ends of its interval in the units of the file, each (batch, horizon,
        column).
        """
        return tuple(part.double() * self.scale + self.mean for part in predicted.unbind(dim=-1))

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the window in the units of the file, and the calendar where there is one."""
        past = batch["past"].double() * self.scale + self.mean
        return past, *(batch[spec.name] for spec in self.inputs[1:])

    def predicted(self, outputs: Any) -> Tensor:
        """Return forecast and ends of its interval, scaled, float32 (batch, horizon, column, 3)."""
        return torch.stack([(part - self.mean) / self.scale for part in outputs], dim=-1).float()

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the scaled future."""
        return batch["future"]

    def facts(self) -> dict[str, Any]:
        """Return the metadata: the columns in order, their scales, how many rows come in and out,
        the step, ...
        """
        return self.metadata.state_dict()

    def unit(self) -> Tensor:
        """Return the standard deviation of each column, (column,)."""
        return self.scale

    def example(self) -> tuple[Tensor, ...]:
        """Return two stretches of a wave around the mean of each column, the same each time."""
        wave, *calendar = (torch.zeros(2, *map(int, spec.shape[1:])) for spec in self.inputs)
        wave += torch.arange(wave[..., 0].numel()).sin().view(2, -1, 1)
        return wave * self.scale + self.mean, *calendar
