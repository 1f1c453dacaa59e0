"""Windows of time series, for training, evaluation and forecasting."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.frames import FileFormat, Policy, UserFile
from litlab.data.module import ExperimentData
from litlab.data.predictions import check_finite, write_predictions
from litlab.data.public import PublicFile
from litlab.data.series.baselines import fit_ridge, linear_forecast, measure, seasonal_naive
from litlab.data.series.calendar import Covariate, make_calendar
from litlab.data.series.generated import GENERATED_COLUMNS, generate_series
from litlab.data.series.regular import Gaps, Series, read_last_rows, read_series, write_times
from litlab.data.series.serving import SeriesMetadata, SeriesServing
from litlab.data.series.windows import Windows, find_bounds, find_starts
from litlab.metrics.forecast_metrics import ForecastMetrics
from litlab.types import PositiveInt, Seed


@dataclass(frozen=True)
class PublicSeries:
    """A public series.

    Args:
        name: Short name.
        file: Its file.
        columns: The columns of numbers.
        ends: Rows where training, validation and test end in published comparisons.
    """

    name: str
    file: PublicFile
    columns: tuple[str, ...]
    ends: tuple[int, int, int]

    @property
    def file_names(self) -> Sequence[str]:
        return [self.file.name]

    @property
    def urls(self) -> Sequence[str]:
        return [self.file.url]

    def download(self, root: Path) -> None:
        self.file.download(root)


class SeriesData(ExperimentData):
    """Windows of a time series with one or more columns: your own file, a public one (in subclasses), or generated.

    The file needs a time column at equal steps (business days, months and years count as equal) and columns of numbers;
    with a `series_column` it may hold several series, of which no window has rows of two. The split is by time, in
    each series by itself. Each column is scaled to mean 0 and deviation 1 of the training rows. Windows are at every
    row; the context of validation and test windows may reach back into the rows before, what they forecast may not.

    A batch is a dict: `past`, float32 (batch, context_length, channel), scaled; `future`, float32 (batch, horizon,
    channel), not in prediction; `calendar`, float32 (batch, context_length + horizon, feature), where there are
    covariates; `start`, int64 (batch,): row where the window begins. In Python, use a Trainer with
    ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `csv` for your own file, `generated` for a made-up series; null: the public series of the class's name,
            or what `path` tells.
        path: `csv`: the file (CSV, Parquet, Excel or JSON lines, by its suffix), or from Python a frame. Public: folder
            to download to (`data` where null).
        time_column: Column of the times. With UTC offsets they count in UTC, or as the clock on the wall where only
            that goes in equal steps.
        series_column: Column that tells which series a row belongs to; null: there is one.
        targets: Columns to forecast; null: all that hold numbers.
        covariates: What the model is told of past and future times: sine and cosine of the place in the hour, day,
            week, month or year.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        split: Fractions of train, val and test, such as [0.7, 0.1, 0.2]; or dates: that of the first validation row,
            that of the first test row, optionally that of the first row after the test. null: [0.7, 0.1, 0.2], or the
            split that is usual for the public series.
        fold: Such as 0/5, the first of five: each series is cut into six blocks of time, the test is the block after
            that number, and all before it is for training and, by the shares of `split`, validation.
        freq: Step from row to row, such as 15min, h, D, B, MS, QS, YS (offset aliases of pandas); null: that which fits
            best. Times nearer to the steps than a tenth of one are moved there.
        gaps: Whether missing rows and values are errors or interpolated linearly, also from the rows after them; never
            more than a tenth of a column.
        bad_rows: Rows that can't be used (text for a number, no time, a time that occurs twice, ...): `error` names
            them, `drop` leaves them out and says how many there are; `gaps` says what becomes of the holes.
        season: Rows of a season, for the seasonal naive forecast and for MASE. null: a day's rows; 7 for daily, 5 for
            business days, 52 for weekly, 12 for monthly ones; 1 for other steps, and where the training rows of a
            series hold no two seasons.
        delimiter: What separates the cells of a CSV file; null: comma, semicolon, tab or bar, whichever fits.
        decimal: The decimal sign.
        missing: Words that stand for a missing value, beside NA, N/A, NaN, null, None and nothing at all.
        time_format: How times are written, such as `%d/%m/%Y %H:%M`; null: in a form that can't be misread.
        batch_size: Windows per batch and process.
        seed: Seed of the order; that of the run (seed_everything) when left out.
        fallback: `generated` uses a made-up one where a public series can't be downloaded, and says so; null: an error.
        **loader: drop_last, num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or wrong.
    """

    item, kind = "windows", "series"
    metadata_type = SeriesMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        time_column: str = "date",
        series_column: str | None = None,
        targets: list[str] | None = None,
        covariates: list[Covariate] | None = None,
        context_length: PositiveInt = 336,
        horizon: PositiveInt = 96,
        split: list[float] | list[str] | None = None,
        fold: str | None = None,
        freq: str | None = None,
        gaps: Gaps = "error",
        bad_rows: Policy = "error",
        season: PositiveInt | None = None,
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        missing: list[str] | None = None,
        time_format: str | None = None,
        batch_size: PositiveInt = 64,
        seed: Seed | None = None,
        fallback: Literal["generated"] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, **loader)
        self.choose_source(dataset, path, fallback)
        ignored = [] if path is None or isinstance(path, str) else ["path"]  # a frame is not for checkpoints
        self.save_hyperparameters(logger=False, ignore=ignored)
        form = FileFormat(delimiter, decimal, tuple(missing or ()), time_format)
        self.reading: dict[str, Any] = {"form": form, "gaps": gaps, "bad_rows": bad_rows}
        self.split = split or [0.7, 0.1, 0.2]
        self._series: Series | None = None
        self._bounds = np.zeros((0, 4), np.int64)
        self._starts: dict[str, Tensor] = {}
        self._predicted: Series | None = None

    # ---- what is known before the series is read; from the checkpoint where one was loaded

    @property
    def _known(self) -> Any:
        return vars(self.metadata) if self.restored else self.hparams

    @property
    def context_length(self) -> int:
        return self._known["context_length"]

    @property
    def horizon(self) -> int:
        return self._known["horizon"]

    @property
    def num_covariates(self) -> int:
        """Number of calendar features."""
        return 2 * len(self._known["covariates"] or [])

    @property
    def target_names(self) -> list[str]:
        """Names of the columns to forecast: the channels."""
        return list(self._known["targets"] or self._public_columns or self.series.table)

    @property
    def _public_columns(self) -> tuple[str, ...] | None:
        return self.public.columns if self.public and self.dataset is None else None

    @property
    def num_targets(self) -> int:
        """Number of channels."""
        return len(self.target_names)

    @property
    def has_test(self) -> bool:
        """Whether there are windows to test on."""
        return self.hparams["fold"] is not None or self.split[-1] != 0

    # ---- what is known after `setup`, or from a checkpoint

    @property
    def description(self) -> str:
        """The series in one line."""
        contents = f"windows of {self.context_length} + {self.horizon} rows, {self.num_targets} columns"
        return self.describe(contents + (self._series.remarks if self._series else ""))

    @property
    def fingerprint(self) -> str:
        """Changes whenever the series or its columns do."""
        contents = [repr(list(self.series.table)).encode(), self.times.tobytes(), self.series.values.tobytes()]
        return f"{self.dataset or self.public.name}-{hashlib.sha256(b''.join(contents)).hexdigest()[:12]}"

    @property
    def mean(self) -> Tensor:
        """Mean of each channel in the training rows, float32 (channel,): units = scaled * scale + mean."""
        return torch.tensor(self.metadata.mean)

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each channel in the training rows, float32 (channel,)."""
        return torch.tensor(self.metadata.scale)

    @property
    def naive_error(self) -> Tensor:
        """Mean absolute error of the seasonal naive forecast within the training rows, scaled, float32 (channel,)."""
        return torch.tensor(self.metadata.naive_error)

    @property
    def times(self) -> np.ndarray:
        """Time of each row, datetime64[s] of shape (time,); several series come one after the other."""
        return self.series.times.to_numpy("datetime64[s]")

    # ---- from a file to memory

    @property
    def series(self) -> Series:
        """The series, which are read when they are first asked for."""
        if self._series is None:
            own, columns = self.hparams, self._public_columns
            file: Any = self.path
            if self.generated:
                file = generate_series(own["time_column"], columns or GENERATED_COLUMNS)
            elif columns:
                file = self.path / self.public.file.name
            settings = {name: own[name] for name in ("time_column", "targets", "series_column", "freq")}
            self._series = read_series(file, **settings, **self.reading)
        return self._series

    def open(self, stage: str | None) -> SeriesMetadata:
        series, own = self.series, self.hparams
        if self._public_columns and not self.generated and own["split"] is own["fold"] is None:
            self._bounds = np.array([[0, *self.public.ends]])
        else:
            self._bounds = find_bounds(series, self.split, own["fold"])
        self._starts = find_starts(self._bounds, own["context_length"], own["horizon"], self.source_name)
        self.sizes = {split: len(starts) for split, starts in self._starts.items()}
        return SeriesMetadata(
            **{name: own[name] for name in ("context_length", "horizon", "time_column", "series_column")},
            **measure(series, self._bounds, own["season"], self.source_name),
            targets=list(series.table),
            covariates=own["covariates"] or [],
            freq=series.freq,
            generated=self.generated,
        )

    def missing_split(self, split: str) -> str:
        return f"data.split: there are no {split} rows; give {split} a fraction above 0"

    @property
    def rows(self) -> list[Tensor]:
        """All rows, and their calendar if there is one, as the model gets them; after `setup`."""
        if "rows" not in self._samples:  # which is emptied with each set-up, and where a checkpoint has other scales
            rows = self._encode(self.series)
            # Other devices than CUDA's may copy the whole strided view for each batch that is gathered from it.
            device = self.choose_device(sum(part.nbytes for part in rows))
            self._samples["rows"] = [part.to(device) for part in rows]
        return self._samples["rows"]

    def _encode(self, series: Series) -> list[Tensor]:
        covariates = self.metadata.covariates
        calendar = [make_calendar(series.times, covariates)] if covariates else []
        return list(self.serving().encode(torch.tensor(series.values), *calendar).values())

    def samples(self, split: str) -> Windows:
        return Windows(self.rows, self._starts[split], self.context_length, self.horizon)

    def serving(self) -> SeriesServing:
        return SeriesServing(self.metadata)

    # ---- baselines

    def ridge(self, context_length: int | None = None) -> Tensor:
        """Fit a ridge regression on the training rows, its penalty chosen on the validation rows.

        Args:
            context_length: Rows to forecast from, those of the windows if left out.

        Returns:
            float32 (horizon, context_length), on the CPU: one linear map from scaled past to scaled forecast for all
            channels.
        """
        past = context_length or self.context_length
        key = f"ridge {past}"
        if key not in self._samples:
            values = self.rows[0]
            train = [values[begin:end] for begin, end, *_ in self._bounds]
            val = [values[max(begin, end - past) : val_end] for begin, end, val_end, _ in self._bounds]
            self._samples[key] = fit_ridge(train, val, past, self.horizon)
        return self._samples[key]

    def baselines(self) -> dict[str, dict[str, float]]:
        """Errors of simple forecasts over all test windows, also where `trainer.limit_test_batches` cuts the test.

        Returns:
            For "repeat last", "seasonal naive" (where the past holds a season) and "ridge (N rows)", from the whole,
            half or a quarter of the past as validates best: "test/mse" and "test/mae" of the scaled series, and
            "test/mase".
        """
        lengths = [self.context_length // part for part in (1, 2, 4)]
        ridges = {rows: partial(linear_forecast, weight=self.ridge(rows)) for rows in lengths if rows}
        best = self.context_length
        if "val" in self.sizes:
            best = min(ridges, key=lambda rows: self._measure(ridges[rows], "val")["mse"])
        methods: dict[str, Any] = {"repeat last": partial(seasonal_naive, horizon=self.horizon, season=1)}
        if self.metadata.season <= self.context_length:
            methods["seasonal naive"] = partial(seasonal_naive, horizon=self.horizon, season=self.metadata.season)
        methods[f"ridge ({best} rows)"] = ridges[best]
        errors = {name: self._measure(method, "test") for name, method in methods.items()}
        return {name: {f"test/{key}": value for key, value in row.items()} for name, row in errors.items()}

    def _measure(self, method: Any, split: str) -> dict[str, float]:
        """Return the mean errors of forecasts, (batch, horizon, channel), from the past of all windows of a split."""
        windows, metric = self.samples(split), ForecastMetrics(self.num_targets)
        metric.naive_error = self.naive_error
        for index in torch.arange(len(windows)).split(self.batch_size):
            batch = windows[index]
            forecast = method(batch["past"]).cpu()[..., None]
            metric.update(forecast.expand(-1, -1, -1, 3), batch["future"].cpu())  # an interval without width
        values = metric.compute()
        return {name: values[name].item() for name in ("mse", "mae", "mase")}

    # ---- prediction

    def open_input(self, source: str) -> Windows:
        series = read_last_rows(source, vars(self.metadata), **self.reading)
        if series.remarks:
            rank_zero_info(f"--input{series.remarks}")
        self._predicted = series
        begins = torch.from_numpy(series.bounds[0])
        windows = Windows(self._encode(series), begins, self.context_length, self.horizon)
        del windows.views["future"]  # it is not known
        return windows

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per series and time that follows `predict_input`, in the user's units.

        Args:
            outputs: Tensors (series, horizon, channel, 3): forecast, lower and upper bound, scaled; bounds are NaN
                where there are none, and empty in the file.
            path: The file; one that is there is replaced.

        Raises:
            UserError: A forecast is not finite, or the file can't be written.
        """
        assert self._predicted is not None  # `open_input` was called
        known = self.metadata
        future = self._predicted.table.groupby(level=0, sort=False).tail(self.horizon).index
        times = write_times(future.get_level_values(1), self._predicted.utc)
        units = torch.stack(self.serving().decode(torch.cat(outputs).cpu()), dim=-1).flatten(0, 1)
        check_finite(units[..., 0], times)

        columns: dict[str, Any] = {known.time_column: times}
        if known.series_column:
            columns = {known.series_column: future.get_level_values(0)} | columns
        for target, numbers in zip(known.targets, units.unbind(1), strict=True):
            columns |= dict(zip((target, f"{target}_lower", f"{target}_upper"), numbers.T.tolist(), strict=True))
        write_predictions(Path(path), columns)
