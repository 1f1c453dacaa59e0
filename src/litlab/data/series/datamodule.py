"""Time series for the training, evaluation and prediction of forecasters."""

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from litlab.data.bad_rows import Policy, count_text
from litlab.data.module import ExperimentData
from litlab.data.paths import user_path
from litlab.data.sampler import EpochBatches
from litlab.data.series.covariates import Covariate, calendar_features
from litlab.data.series.predictions import read_last_window, write_forecast
from litlab.data.series.scaled import ScaledSeries
from litlab.data.series.scaler import check_same, measured
from litlab.data.series.source import Source
from litlab.data.series.split import check_split, split_windows
from litlab.data.series.timeline import Series
from litlab.data.series.windows import Windows
from litlab.errors import UserError

_SPLITS = {"validate": "val", "test": "test"}


class SeriesData(ExperimentData):
    """Windows of a time series with one or more columns: ETTh1, your own CSV file, or generated.

    The file needs a time column at equal steps (months count as equal) and columns of numbers. Times may have any form
    that `datetime.fromisoformat` takes: dates, or times to the second; with UTC offsets they are converted to UTC, and
    all must have one. The split is by time. Each column is scaled to mean 0 and deviation 1 of the training rows.
    Windows are at every row; the past of validation and test windows may reach back into the rows before, what they
    forecast may not.

    A batch is a dict: `past`, float32 (batch, context_length, channel), scaled; `future`, float32 (batch, horizon,
    channel), not in prediction; `calendar`, float32 (batch, context_length + horizon, feature), where there are
    covariates; `start`, int64 (batch,): row of the series where the window begins. Use the trainer
    with ``use_distributed_sampler=False``.

    Args:
        dataset: The public ETTh1, `csv` for your own file, `generated` for a made-up series.
        path: ETTh1: folder to download to (`data` where null). `csv`: the file, UTF-8, .gz too.
        time_column: Column of the times.
        targets: Columns to forecast; null: all that hold numbers.
        covariates: What the model is told of past and future times: sine and cosine of the place in the hour, day,
            week, month or year.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        split: Shares of train, val and test, such as [0.7, 0.1, 0.2]; or dates: that of the first validation row, that
            of the first test row, optionally that of the first row after the test. null: [0.7, 0.1, 0.2]; ETTh1:
            the 12, 4 and 4 months of 30 days that papers use.
        gaps: Whether missing rows and values are errors or interpolated linearly, also from the rows after them.
        bad_rows: Rows that can't be used (text for a number, no time, a time that is there twice, ...): `error` names
            them, `drop` takes them out and says how many there are; `gaps` says what becomes of the holes.
        season: Rows of a season, for the seasonal naive forecast and for MASE. null: a day's rows; 7 for daily, 52
            for weekly, 12 for monthly ones; 1 for other steps, and where the training rows hold no two seasons.
        batch_size: Windows per batch and process.
        seed: Seed of the order; that of the run (seed_everything) when left out.
        fallback: `generated` uses a made-up series where ETTh1 can't be had, and says so; null stops there.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value makes no sense; later: the data is missing or wrong.
    """

    def __init__(
        self,
        dataset: Literal["etth1", "csv", "generated"] = "etth1",
        path: str | None = None,
        time_column: str = "date",
        targets: list[str] | None = None,
        covariates: list[Covariate] | None = None,
        context_length: int = 336,
        horizon: int = 96,
        split: list[float] | list[str] | None = None,
        gaps: Literal["error", "interpolate"] = "error",
        bad_rows: Policy = "error",
        season: int | None = None,
        batch_size: int = 64,
        seed: int | None = None,
        fallback: Literal["generated"] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        self.save_hyperparameters(logger=False)  # the model has settings of the same names, perhaps from a checkpoint
        for name, value, good, hint in (
            ("path", path, path is not None or dataset != "csv", "dataset csv needs your file"),
            ("targets", targets, targets is None or len(targets) > 0, "name at least one, or leave it out"),
            ("context_length", context_length, context_length >= 1, "it must be at least 1"),
            ("horizon", horizon, horizon >= 1, "it must be at least 1"),
            ("season", season, season is None or season >= 1, "it must be at least 1"),
            ("batch_size", batch_size, batch_size >= 1, "it must be at least 1"),
        ):
            if not good:
                raise UserError(f"data.{name}: {'null' if value is None else value} is not valid; {hint}")
        for name in covariates or []:
            if (covariates or []).count(name) > 1:
                raise UserError(f"data.covariates: {name!r} is listed twice; delete one")
        if split is not None:
            check_split(split)
        self.source = Source(
            dataset, user_path(path or "data", "data.path"), time_column, targets, split, gaps, bad_rows
        )
        self.batch_size = batch_size
        self.seed = seed or 0
        self.fallback: Literal["generated"] | None = fallback

        self.generated = dataset == "generated"
        self.sizes: dict[str, int] = {}
        self._settings: dict[str, Any] = {
            "context_length": context_length,
            "horizon": horizon,
            "covariates": list(covariates or []),
        }
        self._season = season
        self._series: Series | None = None
        self._scaled: ScaledSeries | None = None
        self._ends = (0, 0, 0)
        self._starts: dict[str, range] = {}
        self._predicted: np.ndarray | None = None  # the times
        self._state: dict[str, Any] = {}  # see state_dict
        self._restored = False

    # ---- facts that are known before the series is split; those of the checkpoint where one was loaded

    @property
    def context_length(self) -> int:
        """Rows that a forecast is made from."""
        return self._known["context_length"]

    @property
    def horizon(self) -> int:
        """Rows to forecast."""
        return self._known["horizon"]

    @property
    def num_covariates(self) -> int:
        """Number of calendar features."""
        return 2 * len(self._known["covariates"])

    @property
    def target_names(self) -> list[str]:
        """Names of the columns to forecast: the channels."""
        if self._restored:
            return list(self._state["targets"])
        return self.source.columns or list(self._read().names)

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
        counts = " / ".join(f"{count:,} {split}" for split, count in self.sizes.items())
        filled = f", {self._series.filled}" if self._series and self._series.filled else ""
        filled += count_text(self._series.dropped) if self._series else ""
        return (
            f"{self.source.name(self.generated)}: {counts + ' ' if counts else ''}windows of {self.context_length} + "
            f"{self.horizon} rows, {self.num_targets} columns{filled}"
        )

    @property
    def fingerprint(self) -> str:
        """Changes whenever the series or its columns do."""
        series = self._read()
        digest = hashlib.sha256(repr(series.names).encode() + series.times.tobytes() + series.values.tobytes())
        return f"{self.source.dataset}-{digest.hexdigest()[:12]}"

    @property
    def _known(self) -> dict[str, Any]:
        return self._state if self._restored else self._settings

    # ---- facts that are known after `setup` or from a checkpoint

    @property
    def mean(self) -> Tensor:
        """Mean of each channel in the training rows, float32 (channel,): units = scaled * scale + mean."""
        return torch.tensor(self._state["mean"], dtype=torch.float32)

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each channel in the training rows, float32 (channel,)."""
        return torch.tensor(self._state["scale"], dtype=torch.float32)

    @property
    def naive_error(self) -> Tensor:
        """Mean absolute error of the seasonal naive forecast within the training rows, scaled, float32 (channel,)."""
        return torch.tensor(self._state["naive_error"], dtype=torch.float32)

    @property
    def season(self) -> int:
        """Rows of a season."""
        return self._state["season"]

    @property
    def times(self) -> np.ndarray:
        """Time of each row of the series, datetime64[s] of shape (time,)."""
        return self._read().times

    # ---- from a file to memory

    def prepare_data(self) -> None:
        """Download ETTh1 where it is not there yet, or resort to a generated series. Runs on one process."""
        if not self.generated and (self.trainer is None or not self.trainer.predicting):
            self.generated = self.source.ensure_downloaded(self.fallback)

    def _read(self) -> Series:
        if self._series is None:
            self._series = self.source.read(self.generated)
        return self._series

    def setup(self, stage: str | None = None) -> None:
        """Read the series, split and scale it, and bring into memory what the stage needs.

        Args:
            stage: "fit", "validate", "test" or "predict"; None: all but prediction.

        Raises:
            UserError: The series is wrong or too short, or there are no windows for this stage.
        """
        if stage == "predict":
            return
        if self.trainer is not None:
            self.generated = self.trainer.strategy.broadcast(self.generated)
        series, name = self._read(), self.source.name(self.generated)
        self._ends = self.source.ends(series, self.generated)
        self._starts = split_windows(self._ends, self._settings["context_length"], self._settings["horizon"], name)
        self.sizes = {split: len(starts) for split, starts in self._starts.items()}
        own = {"time_column": self.source.time_column, "generated": self.generated}
        here = {**self._settings, **own, **measured(series, self._ends[0], self._season, name)}
        if self._restored:
            check_same(self._state, here)
        else:
            self._state = here
        self._scale()
        if stage in ("validate", "test") and (missing := _SPLITS[stage]) not in self._starts:
            raise UserError(f"data.split: there are no {missing} rows; give {missing} a share above 0")

    def _scale(self) -> None:
        """Apply the scaler of the state, and move the series to where the model is if it fits there."""
        values = self._read().scaled(self._state["mean"], self._state["scale"])
        calendar = calendar_features(self._read().times, self._state["covariates"])
        self._scaled = ScaledSeries(values, calendar, self._ends, self._starts, self.context_length, self.horizon)
        if self.trainer is not None:
            self._scaled = self._scaled.on_device(self.trainer.strategy.root_device)

    def ridge(self, context_length: int | None = None) -> Tensor:
        """Ridge regression fitted on the training rows, its penalty chosen on the validation rows.

        Args:
            context_length: Rows that it forecasts from, those of the windows if left out.

        Returns:
            float32 (horizon, context_length), on the CPU: one linear map from scaled past to scaled forecast for
            all channels.

        Raises:
            UserError: The training rows hold no window so long.
        """
        return self._ready.ridge(context_length or self.context_length)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Errors of simple forecasts over all test windows, also where `trainer.limit_test_batches` cuts the test.

        Returns:
            For "repeat last", "seasonal naive" and "ridge (N rows)", its window chosen by validation: "test/mse" and
            "test/mae" of the scaled series, and "test/mase".
        """
        return self._ready.baselines(self.season, self.naive_error)

    @property
    def _ready(self) -> ScaledSeries:
        if self._scaled is None:
            raise RuntimeError("SeriesData: call setup() first")
        return self._scaled

    # ---- batches

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of the training windows, in an order that depends on (seed, epoch) only."""
        return self._loader(self._ready.windows("train"), "train")

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches of the validation windows; none where there is no validation split."""
        if "val" in self._starts:
            return self._loader(self._ready.windows("val"), "val")
        return self.no_loader()

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of the test windows."""
        return self._loader(self._ready.windows("test"), "test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """One batch with one window: the last rows of the file that `predict_input` names."""
        source = self.check_prediction(self._restored, "a CSV file")
        windows, self._predicted = read_last_window(
            user_path(source, "--input"), self._state, self.source.gaps, self.source.bad_rows
        )
        return self._loader(windows, "predict")

    def _loader(self, windows: Windows, split: str) -> DataLoader[Any]:
        sampler = EpochBatches(len(windows), self.batch_size, **self.sampler_options(split, "windows"))
        return self.loader(windows, sampler, in_host_memory=windows.values.device.type == "cpu")

    # ---- what a checkpoint needs to forecast from a raw file

    def state_dict(self) -> dict[str, Any]:
        """Columns, window, covariates, season, step of time, scaler, seasonal naive error, whether generated."""
        return dict(self._state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what the checkpoint was trained with.

        Args:
            state_dict: What `state_dict` returned.

        Raises:
            UserError: The data at hand have other columns, another step or other windows.
        """
        if self._state:
            check_same(state_dict, self._state)
        self._state = dict(state_dict)
        self._restored = True
        if self._scaled is not None:
            self._scale()

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per time that follows `predict_input`, in the user's units.

        Args:
            outputs: One tensor (1, horizon, channel, 3): forecast, lower and upper bound, scaled; the columns of the
                bounds are left out where these are NaN.
            path: The file; one that is there is replaced.

        Raises:
            UserError: It can't be written.
        """
        if self._predicted is None:
            raise RuntimeError("SeriesData: nothing was predicted")
        write_forecast(Path(path), self._state, self._predicted, torch.cat(outputs)[0])
