"""Windows of time series, for training, evaluation and forecasting."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.frames import FileFormat, Policy, UserFile
from litlab.data.module import ExperimentData
from litlab.data.predictions import check_finite, write_predictions
from litlab.data.public import PublicFile
from litlab.data.series.baselines import fit_ridge, forecast_errors, linear_forecast, repeat_last, seasonal_naive
from litlab.data.series.calendar import Covariate, make_calendar
from litlab.data.series.forecasts import name_columns, read_last_rows, write_times
from litlab.data.series.generated import GENERATED_COLUMNS, generate_series
from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.regular import Gaps, Series, read_series
from litlab.data.series.scale import check_range, measure
from litlab.data.series.serving import SeriesServing
from litlab.data.series.steps import read_step
from litlab.data.series.windows import FRACTIONS, Split, Windows, check_split, find_bounds, find_starts
from litlab.errors import UserError
from litlab.types import PositiveInt, Seed

_DEVICE_SHARE = 0.25  # of a GPU's free memory that the series may take


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

    public: ClassVar[PublicSeries | None] = None
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
        self.form = FileFormat(delimiter, decimal, tuple(missing or ()), time_format)
        self.freq = None if freq is None else read_step(freq)
        if targets is not None and not 0 < len(targets) == len(set(targets)):
            raise UserError(f"data.targets: {targets} is not valid; name each column once, or leave it out for all")
        if split is not None:
            check_split(split)
        if fold is not None and split is not None and isinstance(split[0], str):
            raise UserError("data.fold: it does not go with dates as data.split; give fractions, or leave it out")
        self.split: Split = split or FRACTIONS
        self._series: Series | None = None
        self._bounds = np.zeros((0, 4), np.int64)
        self._starts: dict[str, Tensor] = {}
        self._predicted: Series | None = None

    # ---- what is known before the series is read; from the checkpoint where one was loaded

    def _setting(self, name: str) -> Any:
        return getattr(self.metadata, name) if self.restored else self.hparams[name]

    @property
    def context_length(self) -> int:
        """Rows that a forecast is made from."""
        return self._setting("context_length")

    @property
    def horizon(self) -> int:
        """Rows to forecast."""
        return self._setting("horizon")

    @property
    def num_covariates(self) -> int:
        """Number of calendar features."""
        return 2 * len(self._setting("covariates") or [])

    @property
    def _known_columns(self) -> tuple[str, ...] | None:
        if self.dataset == "generated":
            return GENERATED_COLUMNS
        return self.public.columns if self.dataset is None and self.public else None

    @property
    def target_names(self) -> list[str]:
        """Names of the columns to forecast: the channels."""
        if self.restored:
            return self.metadata.targets
        return self.hparams["targets"] or list(self._known_columns or self._read().names)

    @property
    def num_targets(self) -> int:
        """Number of channels."""
        return len(self.target_names)

    @property
    def has_val(self) -> bool:
        """Whether there are windows to validate on."""
        return isinstance(self.split[1], str) or self.split[1] > 0

    @property
    def has_test(self) -> bool:
        """Whether there are windows to test on."""
        return self.hparams["fold"] is not None or isinstance(self.split[-1], str) or self.split[-1] > 0

    @property
    def description(self) -> str:
        """The series in one line; with the numbers of windows after `setup`."""
        contents = f"windows of {self.context_length} + {self.horizon} rows, {self.num_targets} columns"
        if self._series is None:
            return self.describe(contents)
        count = len(self._series.series)
        several = f" of {count:,} series" if count > 1 else ""
        return self.describe(contents + several + self._series.remarks)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the series or its columns do."""
        name = self.dataset or (self.public.name if self.public else "")
        return f"{name}-{self._read().digest[:12]}"

    # ---- what is known after `setup`, or from a checkpoint

    @property
    def mean(self) -> Tensor:
        """Mean of each channel in the training rows, float32 (channel,): units = scaled * scale + mean."""
        return torch.tensor(self.metadata.mean, dtype=torch.float32)

    @property
    def scale(self) -> Tensor:
        """Standard deviation of each channel in the training rows, float32 (channel,)."""
        return torch.tensor(self.metadata.scale, dtype=torch.float32)

    @property
    def naive_error(self) -> Tensor:
        """Mean absolute error of the seasonal naive forecast within the training rows, scaled, float32 (channel,)."""
        return torch.tensor(self.metadata.naive_error, dtype=torch.float32)

    @property
    def season(self) -> int:
        """Rows of a season."""
        return self.metadata.season

    @property
    def times(self) -> np.ndarray:
        """Time of each row, datetime64[s] of shape (time,); several series come one after the other."""
        return self._read().times.to_numpy("datetime64[s]")

    # ---- from a file to memory

    def _read(self) -> Series:
        if self._series is not None:
            return self._series
        own = self.hparams
        file: Any = self.path
        if self.generated:
            file = generate_series(own["time_column"], self._known_columns or GENERATED_COLUMNS)
        elif self.public is not None and self.dataset is None:
            file = self.path / self.public.file.name
        names = ("time_column", "targets", "series_column", "gaps", "bad_rows")
        self._series = read_series(file, **{name: own[name] for name in names}, form=self.form, freq=self.freq)
        return self._series

    def open(self, stage: str | None) -> SeriesMetadata:
        series, own = self._read(), self.hparams
        is_stand_in = self.generated and self.dataset is None
        if self.public and not self.dataset and not is_stand_in and own["split"] is None and own["fold"] is None:
            self._bounds = np.array([[0, *self.public.ends]])
        else:
            split = FRACTIONS if is_stand_in and isinstance(self.split[0], str) else self.split  # dates of real data
            self._bounds = find_bounds(series, split, own["fold"], self.source_name)
        is_long = self._bounds[:, 3] - self._bounds[:, 0] >= own["context_length"] + own["horizon"]
        if is_long.any() and not is_long.all():
            rank_zero_info(f"{self.source_name}: {(~is_long).sum():,} series are shorter than a window and left out")
            self._bounds = self._bounds[is_long]
        self._starts = find_starts(self._bounds, own["context_length"], own["horizon"], self.source_name)
        self.sizes = {split: len(starts) for split, starts in self._starts.items()}
        settings = {name: own[name] for name in ("context_length", "horizon", "time_column", "series_column")}
        return SeriesMetadata(
            **settings,
            **measure(series, self._bounds, own["season"], self.source_name),
            targets=series.names,
            covariates=own["covariates"] or [],
            freq=series.freq,
            utc=series.utc,
            generated=self.generated,
        )

    def setup(self, stage: str | None = None) -> None:
        super().setup(stage)
        if stage != "predict":
            _ = self.rows  # so that values which can't be scaled are refused here

    def missing_split(self, split: str) -> str:
        return f"data.split: there are no {split} rows; give {split} a fraction above 0"

    @property
    def rows(self) -> tuple[Tensor, Tensor | None]:
        """All rows and their calendar as the model gets them, where the model is if they fit there; after `setup`."""
        if "rows" not in self._samples:  # which is emptied with each set-up, and where a checkpoint has other scales
            series = self._read()
            values, calendar = self._encode(series)
            device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
            size = values.nbytes + (0 if calendar is None else calendar.nbytes)
            # Not on other devices: they may copy the whole strided view for each batch that is gathered from it.
            if device.type == "cuda" and size <= _DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
                values, calendar = values.to(device), None if calendar is None else calendar.to(device)
            self._samples["rows"] = values, calendar
        return self._samples["rows"]

    def _encode(self, series: Series) -> tuple[Tensor, Tensor | None]:
        """Return the scaled rows, float32 (row, channel), and their calendar, (row, feature)."""
        covariates = self.metadata.covariates
        calendar = [make_calendar(series.times, covariates)[None]] if covariates else []
        batch = self.serving().encode(torch.from_numpy(series.values)[None], *calendar)
        check_range(batch["past"][0].numpy(), series)
        return batch["past"][0], batch["calendar"][0] if covariates else None

    def samples(self, split: str) -> Windows:
        return Windows(*self.rows, self._starts[split], self.context_length, self.horizon)

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

        Raises:
            UserError: The training rows hold no window so long.
        """
        past, key = context_length or self.context_length, f"ridge {context_length or self.context_length}"
        if key not in self._samples:
            values, _ = self.rows
            parts = [(values[b:t], values[max(b, t - past) : v]) for b, t, v, _ in self._bounds.tolist()]
            train, val = (
                [part for part in half if len(part) >= past + self.horizon] for half in zip(*parts, strict=True)
            )
            if not train:
                rows = (self._bounds[:, 1] - self._bounds[:, 0]).max()
                raise UserError(
                    f"data: {rows} training rows are too few for a ridge regression from {past} rows to "
                    f"{self.horizon}; give it a shorter past"
                )
            self._samples[key] = fit_ridge(train, val, past, self.horizon)
        return self._samples[key].clone()

    def baselines(self) -> dict[str, dict[str, float]]:
        """Errors of simple forecasts over all test windows, also where `trainer.limit_test_batches` cuts the test.

        Returns:
            For "repeat last", "seasonal naive" and "ridge (N rows)", from the whole, half or a quarter of the past as
            validates best: "test/mse" and "test/mae" of the scaled series, and "test/mase".
        """
        lengths = [self.context_length // part for part in (1, 2, 4)]
        if "val" not in self.sizes:
            lengths = lengths[:1]
        ridges = {f"ridge ({n} rows)": partial(linear_forecast, weight=self.ridge(n)) for n in lengths if n}
        if len(ridges) > 1:
            errors = forecast_errors(ridges, self.samples("val"), self.naive_error)
            best = min(errors, key=lambda name: errors[name]["mse"])
            ridges = {best: ridges[best]}
        methods = {
            "repeat last": partial(repeat_last, horizon=self.horizon),
            "seasonal naive": partial(seasonal_naive, horizon=self.horizon, season=self.season),
            **ridges,
        }
        # A season longer than the windows' past reaches further back.
        history = max(self.context_length, self.season)
        starts = self._starts["test"] - (history - self.context_length)
        windows = Windows(self.rows[0], None, starts, history, self.horizon)
        errors = forecast_errors(methods, windows, self.naive_error)
        return {method: {f"test/{name}": value for name, value in row.items()} for method, row in errors.items()}

    # ---- prediction

    def open_input(self, source: str) -> Windows:
        own = self.hparams
        series = read_last_rows(source, vars(self.metadata), self.form, own["gaps"], own["bad_rows"])
        if series.remarks:
            rank_zero_info(f"--input{series.remarks}")
        self._predicted = series
        starts = torch.tensor(series.begins)
        return Windows(*self._encode(series), starts, self.context_length, self.horizon, known=False)

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
        series, known = self._predicted, self.metadata
        is_future = np.arange(len(series.times)) % (self.context_length + self.horizon) >= self.context_length
        times = write_times(series.times[is_future], known.freq, known.utc)
        units = torch.stack(self.serving().decode(torch.cat(outputs).cpu()), dim=-1).flatten(0, 1)
        check_finite(units if units[..., 1:].isfinite().any() else units[..., :1], times)

        columns: dict[str, Any] = {known.time_column: times}
        if known.series_column is not None:
            columns = {known.series_column: np.repeat(series.series, self.horizon), **columns}
        names = name_columns(known.targets, columns)
        write_predictions(Path(path), columns | dict(zip(names, units.flatten(1).T.tolist(), strict=True)))
