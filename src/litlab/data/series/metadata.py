"""What a checkpoint knows of its series."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from litlab.data.files import Frame
from litlab.data.target_metadata import TargetMetadata

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
        ranges: Smallest and largest number of each target and each column of numbers.
        season: Rows of a season.
        naive_error: Mean absolute error of the seasonal naive forecast, scaled, for each channel.
    """

    # The scales are not among them: those of the checkpoint count
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
    ranges: dict[str, list[float]] = field(default_factory=dict)

    @property
    def needed(self) -> list[str]:
        # What is missing elsewhere is a gap, and may be filled
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
        # In the order of `arrange_inputs`
        names = [
            f"{function} of {name}" for name in self.calendar for function in ("sine", "cosine")
        ]
        for name in self.covariate_columns:
            texts = self.categories.get(name)
            names += [name] if texts is None else [f"{name} is {text}" for text in texts]
        return names

    @property
    def num_covariates(self) -> int:
        return len(self.features)

    # As charts and a forecaster's settings call them
    mean, scale = TargetMetadata.target_mean, TargetMetadata.target_std
    num_targets = TargetMetadata.num_outputs

    def arrange_inputs(self, table: Frame) -> list[Tensor]:
        """Arrange rows as a deployed model takes them.

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
        # The index has the name of the series and the time
        features = [make_calendar(table.index.get_level_values(1), self.calendar)]
        for name in self.covariate_columns:
            cells, texts = table[[name]], self.categories.get(name)
            if texts is None:
                features.append(cells.to_numpy())
            else:
                # (time, 1) == (category,) is (time, category); a missing text is none of them
                features.append(cells.fillna("").to_numpy(object) == np.array(texts, object))
        return [targets, torch.from_numpy(np.concatenate(features, axis=1, dtype="float64"))]


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
    # (time, name), even without a name; then (time, name, 2)
    angles = 2 * np.pi * np.array([shares[name] for name in names]).reshape(-1, len(times)).T
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(times), -1)
