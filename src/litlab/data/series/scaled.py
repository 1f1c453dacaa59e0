"""A series as numbers that a model can take, its windows, and what simple forecasts reach on them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from litlab.data.series.baselines import fit_ridge, forecast_errors, linear_forecast, repeat_last, seasonal_naive
from litlab.data.series.covariates import calendar_features
from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.timeline import Series
from litlab.data.series.windows import Windows
from litlab.errors import UserError

_DEVICE_SHARE = 0.25  # of a GPU's free memory that the series may take
_CHUNK = 2**24  # numbers in the batches that the baselines work on


@dataclass
class ScaledSeries:
    """A scaled series with its splits.

    Args:
        values: float32 (time, channel).
        calendar: float32 (time, feature); None: there are no covariates.
        ends: Ends of the training, the validation and the test rows.
        starts: For each split the rows where the past of its windows begins.
        context_length: Rows of a window's past.
        horizon: Rows to forecast.
    """

    values: Tensor
    calendar: Tensor | None
    ends: tuple[int, int, int]
    starts: dict[str, range]
    context_length: int
    horizon: int
    ridges: dict[int, Tensor] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls, series: Series, metadata: SeriesMetadata, ends: tuple[int, int, int], starts: dict[str, range]
    ) -> "ScaledSeries":
        """Scale a series by its metadata, perhaps a checkpoint's, and compute its covariates.

        Raises:
            UserError: A value is too far from the mean for float32.
        """
        values = series.scaled(metadata.mean, metadata.scale)
        calendar = calendar_features(series.times, metadata.covariates)
        return cls(values, calendar, ends, starts, metadata.context_length, metadata.horizon)

    def on_device(self, device: torch.device) -> "ScaledSeries":
        """Copy the series to a GPU where it fits there.

        Returns:
            The copy; or this series where it doesn't fit, or the device is not a CUDA device: others may copy the whole
            strided view for each batch that is gathered from it.
        """
        tensors = [self.values] if self.calendar is None else [self.values, self.calendar]
        size = sum(tensor.nbytes for tensor in tensors)
        if device.type != "cuda" or size > _DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            return self
        values, *calendar = (tensor.to(device) for tensor in tensors)
        return replace(self, values=values, calendar=calendar[0] if calendar else None)

    def windows(self, split: str) -> Windows:
        """All windows of a split."""
        return Windows(self.values, self.calendar, self.starts[split], self.context_length, self.horizon)

    def ridge(self, context_length: int) -> Tensor:
        """Fit a ridge regression on the training rows, its penalty chosen on the validation rows.

        Returns:
            float32 (horizon, context_length), on the CPU: one linear map from scaled past to scaled forecast for all
            channels.

        Raises:
            UserError: The training rows hold no window so long.
        """
        train_end, val_end, _ = self.ends
        if train_end < context_length + self.horizon:
            raise UserError(
                f"data: {train_end} training rows are too few for a ridge regression from {context_length} rows to "
                f"{self.horizon}; give it a shorter past"
            )
        if context_length not in self.ridges:
            val = self.values[train_end - context_length : val_end] if "val" in self.starts else None
            self.ridges[context_length] = fit_ridge(self.values[:train_end], val, context_length, self.horizon)
        return self.ridges[context_length].clone()

    def best_ridge(self, naive_error: Tensor) -> Tensor:
        """Of the ridges from the whole, half and a quarter of the past the one that validates best.

        Returns:
            float32 (horizon, rows), on the CPU. From the whole past where there is no validation split.
        """
        lengths = [rows for rows in (self.context_length, self.context_length // 2, self.context_length // 4) if rows]
        if "val" not in self.starts or len(lengths) == 1:
            return self.ridge(self.context_length)
        ridges = {str(rows): self.ridge(rows) for rows in lengths}
        methods = {name: partial(linear_forecast, weight=weight) for name, weight in ridges.items()}
        errors = forecast_errors(methods, self._batches("val", self.context_length), naive_error)
        return ridges[min(errors, key=lambda name: errors[name]["mse"])]

    def baselines(self, season: int, naive_error: Tensor) -> dict[str, dict[str, float]]:
        """Errors of simple forecasts over all test windows, also where `trainer.limit_test_batches` cuts the test.

        Returns:
            For "repeat last", "seasonal naive" and "ridge (N rows)", its window chosen by validation: "test/mse" and
            "test/mae" of the scaled series, and "test/mase".
        """
        weight = self.best_ridge(naive_error)
        methods = {
            "repeat last": partial(repeat_last, horizon=self.horizon),
            "seasonal naive": partial(seasonal_naive, horizon=self.horizon, season=season),
            f"ridge ({weight.shape[1]} rows)": partial(linear_forecast, weight=weight),
        }
        errors = forecast_errors(methods, self._batches("test", max(self.context_length, season)), naive_error)
        return {method: {f"test/{name}": value for name, value in row.items()} for method, row in errors.items()}

    def _batches(self, split: str, history: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Past and future of all windows; a season longer than the windows' past reaches further back."""
        more = history - self.context_length
        starts = range(self.starts[split].start - more, self.starts[split].stop - more)
        windows = Windows(self.values, None, starts, history, self.horizon)
        size = max(1, _CHUNK // ((history + self.horizon) * self.values.shape[1]))
        for index in torch.arange(len(windows)).split(size):
            batch = windows[index]
            yield batch["past"], batch["future"]
