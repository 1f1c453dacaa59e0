"""Windows of a time series, for training, evaluation and forecasting."""

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from litlab.data.bad_rows import Policy
from litlab.data.paths import user_path
from litlab.data.selectable import SelectableData
from litlab.data.series.covariates import Covariate, check_covariates
from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.predictions import read_last_window, write_forecast
from litlab.data.series.scaled import ScaledSeries
from litlab.data.series.scaler import measured
from litlab.data.series.serving import SeriesServing
from litlab.data.series.source import PublicSeries, Source
from litlab.data.series.split import split_windows
from litlab.data.series.timeline import Series
from litlab.data.series.windows import Windows
from litlab.types import PositiveInt, Seed


class SeriesData(SelectableData[SeriesMetadata]):
    """Windows of a time series with one or more columns: your own CSV file, a public one (in subclasses), or generated.

    The file needs a time column at equal steps (months count as equal) and columns of numbers. Times may have any form
    that `datetime.fromisoformat` takes: dates, or times to the second; with UTC offsets they are converted to UTC, and
    all must have one. The split is by time. Each column is scaled to mean 0 and deviation 1 of the training rows.
    Windows are at every row; the context of validation and test windows may reach back into the rows before, what they
    forecast may not.

    A batch is a dict: `past`, float32 (batch, context_length, channel), scaled; `future`, float32 (batch, horizon,
    channel), not in prediction; `calendar`, float32 (batch, context_length + horizon, feature), where there are
    covariates; `start`, int64 (batch,): row of the series where the window begins. In Python, use a
    Trainer with ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `csv` for your own file, `generated` for a made-up series; null: the public series of the class's name.
        path: `csv`: the file, UTF-8, .gz too. Public: folder to download to (`data` where null).
        time_column: Column of the times.
        targets: Columns to forecast; null: all that hold numbers.
        covariates: What the model is told of past and future times: sine and cosine of the place in the hour, day,
            week, month or year.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        split: Fractions of train, val and test, such as [0.7, 0.1, 0.2]; or dates: that of the first validation row,
            that of the first test row, optionally that of the first row after the test. null: [0.7, 0.1, 0.2], or the
            split that is usual for the public series.
        gaps: Whether missing rows and values are errors or interpolated linearly, also from the rows after them.
        bad_rows: Rows that can't be used (text for a number, no time, a time that occurs twice, ...): `error` names
            them, `drop` leaves them out and says how many there are; `gaps` says what becomes of the holes.
        season: Rows of a season, for the seasonal naive forecast and for MASE. null: a day's rows; 7 for daily, 52
            for weekly, 12 for monthly ones; 1 for other steps, and where the training rows hold no two seasons.
        batch_size: Windows per batch and process.
        seed: Seed of the order; that of the run (seed_everything) when left out.
        fallback: `generated` uses a made-up one where a public series can't be downloaded, and says so; null: an error.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or wrong.
    """

    public: ClassVar[PublicSeries | None] = None
    item, kind = "windows", "series"
    input_kinds = "a CSV file"
    metadata_type = SeriesMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: str | None = None,
        *,
        time_column: str = "date",
        targets: list[str] | None = None,
        covariates: list[Covariate] | None = None,
        context_length: PositiveInt = 336,
        horizon: PositiveInt = 96,
        split: list[float] | list[str] | None = None,
        gaps: Literal["error", "interpolate"] = "error",
        bad_rows: Policy = "error",
        season: PositiveInt | None = None,
        batch_size: PositiveInt = 64,
        seed: Seed | None = None,
        fallback: Literal["generated"] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(dataset, path, fallback, batch_size=batch_size, seed=seed, **loader)
        self.save_hyperparameters(logger=False)  # the model has settings of the same names, perhaps from a checkpoint
        check_covariates(covariates or [])
        self.source = Source(dataset, self.public, self.path, time_column, targets, split, gaps, bad_rows)
        self._series: Series | None = None
        self._ends = (0, 0, 0)
        self._starts: dict[str, range] = {}
        self._predicted: np.ndarray | None = None  # the times

    # ---- what is known before the series is read; from the checkpoint where one was loaded

    @property
    def context_length(self) -> int:
        """Rows that a forecast is made from."""
        return self.setting("context_length")

    @property
    def horizon(self) -> int:
        """Rows to forecast."""
        return self.setting("horizon")

    @property
    def num_covariates(self) -> int:
        """Number of calendar features."""
        return 2 * len(self.setting("covariates") or [])

    @property
    def target_names(self) -> list[str]:
        """Names of the columns to forecast: the channels."""
        if self.metadata and self.restored:
            return self.metadata.targets
        return self.source.columns or self._read().names

    @property
    def num_targets(self) -> int:
        """Number of channels."""
        return len(self.target_names)

    @property
    def has_val(self) -> bool:
        """Whether there are windows to validate on."""
        return self.source.has("val")

    @property
    def has_test(self) -> bool:
        """Whether there are windows to test on."""
        return self.source.has("test")

    @property
    def description(self) -> str:
        """The series in one line; with the numbers of windows after `setup`."""
        contents = f"windows of {self.context_length} + {self.horizon} rows, {self.num_targets} columns"
        return self.described(contents + (self._series.remarks if self._series else ""))

    @property
    def fingerprint(self) -> str:
        """Changes whenever the series or its columns do."""
        return f"{self.source.kind}-{self._read().digest[:12]}"

    # ---- what is known after `setup`, or from a checkpoint

    @property
    def mean(self) -> Tensor:
        """Mean of each channel in the training rows, float32 (channel,): units = scaled * scale + mean."""
        return torch.tensor(self.known_metadata.mean, dtype=torch.float32)

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each channel in the training rows, float32 (channel,)."""
        return torch.tensor(self.known_metadata.scale, dtype=torch.float32)

    @property
    def naive_error(self) -> Tensor:
        """Mean absolute error of the seasonal naive forecast within the training rows, scaled, float32 (channel,)."""
        return torch.tensor(self.known_metadata.naive_error, dtype=torch.float32)

    @property
    def season(self) -> int:
        """Rows of a season."""
        return self.known_metadata.season

    @property
    def times(self) -> np.ndarray:
        """Time of each row of the series, datetime64[s] of shape (time,)."""
        return self._read().times

    # ---- from a file to memory

    def _read(self) -> Series:
        if self._series is None:
            self._series = self.source.read(self.generated)
        return self._series

    @override
    def open(self, stage: str | None) -> SeriesMetadata:
        series, name, own = self._read(), self.source_name, self.hparams
        self._ends = self.source.ends(series, self.generated, name)
        self._starts = split_windows(self._ends, own["context_length"], own["horizon"], name)
        self.sizes = {split: len(starts) for split, starts in self._starts.items()}
        settings = {name: own[name] for name in ("context_length", "horizon", "time_column")}
        settings |= {"covariates": own["covariates"] or [], "generated": self.generated}
        return SeriesMetadata(**settings, **measured(series, self._ends[0], own["season"], name))

    @override
    def setup(self, stage: str | None = None) -> None:
        super().setup(stage)
        if stage != "predict":
            _ = self.scaled  # so that values which can't be scaled are refused here

    @override
    def missing_split(self, split: str) -> str:
        return f"data.split: there are no {split} rows; give {split} a fraction above 0"

    @override
    def samples(self, split: str) -> Windows:
        return self.scaled.windows(split)

    @property
    def scaled(self) -> ScaledSeries:
        """The scaled series with its splits, where the model is if it fits there; after `setup`."""
        if "scaled" not in self._samples:  # which is emptied with each set-up, and where a checkpoint has other scales
            scaled = ScaledSeries.of(self._read(), self.known_metadata, self._ends, self._starts)
            device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
            self._samples["scaled"] = scaled.on_device(device)
        return self._samples["scaled"]

    def ridge(self, context_length: int | None = None) -> Tensor:
        """Fit `ScaledSeries.ridge` to forecast from so many rows, those of the windows if left out."""
        return self.scaled.ridge(context_length or self.context_length)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Errors of simple forecasts over all test windows, see `ScaledSeries.baselines`."""
        return self.scaled.baselines(self.season, self.naive_error)

    @override
    def serving(self) -> SeriesServing:
        return SeriesServing(self.known_metadata)

    # ---- prediction

    @override
    def open_input(self, source: str) -> Windows:
        file = user_path(source, "--input")
        windows, self._predicted = read_last_window(file, self.known_metadata, self.source.gaps, self.source.bad_rows)
        return windows

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per time that follows `predict_input`, in the user's units.

        Args:
            outputs: One tensor (1, horizon, channel, 3): forecast, lower and upper bound, scaled; the columns of the
                bounds are left out where these are NaN.
            path: The file; one that is there is replaced.

        Raises:
            UserError: A forecast is not finite, or the file can't be written.
        """
        assert self._predicted is not None  # `open_input` was called
        write_forecast(Path(path), self.known_metadata, self._predicted, torch.cat(outputs)[0])
