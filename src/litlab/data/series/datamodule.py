"""Windows of time series, for training, evaluation and forecasting."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from litlab.data.files import FileFormat, Policy, UserFile
from litlab.data.generated import SERIES_COLUMNS, generate_series
from litlab.data.module import ExperimentData
from litlab.data.predictions import check_finite, write_predictions
from litlab.data.public import PublicFile
from litlab.data.series.regular import Gaps, Series, read_last_rows, read_series
from litlab.data.series.serving import (
    Covariate,
    SeriesMetadata,
    SeriesServing,
    make_calendar,
    measure,
)
from litlab.data.series.windows import Windows, find_ends, find_starts, fit_ridge, split_rows
from litlab.metrics import ForecastMetrics
from litlab.types import HalfOpenUnitInterval, PositiveInt


@dataclass(frozen=True)
class PublicSeries(PublicFile):
    """A public series in one file.

    Args:
        url: Address of the file.
        name: Its name here.
        digest: Its checksum, such as ``sha256:0f3a...``.
        columns: The columns of numbers.
        ends: Rows where training, validation and test end in published comparisons.
    """

    columns: tuple[str, ...]
    ends: tuple[int, int, int]

    @property
    def file_names(self) -> list[str]:
        return [self.name]


class SeriesData(ExperimentData):
    """Windows of a time series with one or more columns: your own file, a public one (in
    subclasses), or generated.

    The file needs a time column at equal steps (business days, months and years count as equal) and
    columns of numbers; with a `series_column` it may hold several series, of which no window has
    rows of two. The split is by time, in each series by itself. Each column is scaled to mean 0 and
    deviation 1 of the training rows. Windows are at every row; the context of validation and test
    windows may reach back into the rows before, what they forecast may not.

    A batch is a dict: `past`, float32 (batch, context_length, channel), scaled; `future`, float32
    (batch, horizon, channel), not in prediction; `calendar`, float32 (batch, context_length +
    horizon, feature), where there are covariates; `start`, int64 (batch,): row where the window
    begins. In Python, use a Trainer with ``use_distributed_sampler=False``, as the command line
    does.

    Args:
        dataset: `csv` for your own file, `generated` for a made-up series; null: the public series
            of the class's name, or what `path` tells.
        path: `csv`: the file (CSV, Parquet, Excel or JSON lines, by its suffix), or from Python a
            frame. Public: folder to download to (`data` where null).
        time_column: Column of the times. With UTC offsets they count in UTC, or as the clock on the
            wall where only that goes in equal steps.
        series_column: Column that tells which series a row belongs to; null: there is one.
        targets: Columns to forecast; null: all that hold numbers.
        covariates: What the model is told of past and future times: sine and cosine of the place in
            the hour, day, week, month or year.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        val_fraction: Share of the rows of each series for validation; of the rows before the test
            with a fold.
        test_fraction: Share of the rows of each series for the test: the last ones.
        fold: Such as 0/5, the first of five, in place of the test: each series is cut into six
            blocks of time, the test is the block after that number, and all before it is for
            training and validation.
        freq: Step from row to row, such as 15min, h, D, B, MS, QS, YS (offset aliases of pandas);
            null: that which fits best. Times nearer to the steps than a tenth of one are moved
            there.
        gaps: Whether missing rows and values are errors or interpolated linearly, also from the
            rows after them; never more than a tenth of a column.
        bad_rows: Rows that can't be used (text for a number, no time, a time that occurs twice,
            ...): `error` names them, `drop` leaves them out and says how many there are; `gaps`
            says what becomes of the holes.
        season: Rows of a season, for the seasonal naive forecast and for MASE. null: a day's rows;
            7 for daily, 5 for business days, 52 for weekly, 12 for monthly ones; 1 for other steps,
            and where the training rows of a series hold no two seasons.
        delimiter: What separates the cells of a CSV file; null: comma, semicolon, tab or bar,
            whichever fits.
        decimal: The decimal sign.
        thousands: What stands between groups of three digits, as the comma in 1,129; null: nothing.
        missing: Words that stand for a missing value, beside NA, N/A, NaN, null, None and nothing
            at all.
        time_format: How times are written, such as `%d/%m/%Y %H:%M`; null: in a form that can't be
            misread.
        batch_size: Windows per batch and process.
        fallback: `generated` uses a made-up one where a public series can't be downloaded, and says
            so; null: an error.
        **loader: seed, drop_last, num_workers, pin_memory, persistent_workers and prefetch_factor,
            as of `ExperimentData`.

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
        covariates: list[Covariate] = [],  # noqa: B006 - lists are not changed
        context_length: PositiveInt = 336,
        horizon: PositiveInt = 96,
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.2,
        fold: str | None = None,
        freq: str | None = None,
        gaps: Gaps = "error",
        bad_rows: Policy = "error",
        season: PositiveInt | None = None,
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        thousands: str | None = None,
        missing: list[str] = [],  # noqa: B006
        time_format: str | None = None,
        batch_size: PositiveInt = 64,
        fallback: Literal["generated"] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, **loader)
        self.save_hyperparameters(logger=False, ignore=["path"])  # a frame can't be in a checkpoint
        self.settings: Any = self.hparams
        self.choose_source(dataset, path, fallback)
        if targets is None and self.dataset != "csv":
            self.settings.targets = self.public.columns if self.public else SERIES_COLUMNS
        form = FileFormat(delimiter, decimal, thousands, tuple(missing), time_format)
        self.reading: dict[str, Any] = {"form": form, "gaps": gaps, "bad_rows": bad_rows}

    # ---- what models and messages are told

    def survey(self) -> SeriesMetadata:
        """Return what is known before the series is measured; a public one need not be here yet."""
        settings = self.settings
        names = "context_length", "horizon", "covariates", "time_column", "series_column"
        return SeriesMetadata(
            **{name: settings[name] for name in names},
            targets=list(settings.targets or self.series.table),
            freq="",
            season=1,
            mean=[],
            scale=[],
            naive_error=[],
            generated=self.generated,
        )

    @property
    def description(self) -> str:
        """The series in one line."""
        return self.describe(
            f"windows of {self.context_length} + {self.horizon} rows, {self.num_targets} columns"
        )

    @property
    def fingerprint(self) -> str:
        """Changes whenever a time or a number of the series does."""
        return hashlib.sha256(
            self.times.tobytes() + self.series.table.values.tobytes()
        ).hexdigest()[:12]

    @property
    def times(self) -> np.ndarray:
        """Time of each row, datetime64[s] of shape (time,); several series come one after the
        other.
        """
        return self.series.times.to_numpy("datetime64[s]")

    # ---- from a file to memory

    @cached_property
    def series(self) -> Series:
        """The series, which are read when they are first asked for."""
        source: Any = self.path
        if self.generated:
            source = generate_series(self.settings.time_column, self.settings.targets)
        elif self.dataset is None:
            source = self.path / self.public.name
        return read_series(source, self.settings, **self.reading)

    def open(self, stage: str | None) -> SeriesMetadata:
        series, settings = self.series, self.settings
        ends = find_ends(settings.val_fraction, settings.test_fraction, settings.fold)
        if settings.fold is None and not (self.dataset or self.generated):
            ends = [row / len(series.table) for row in self.public.ends]
        self._split = split_rows(series, ends)
        self._starts = find_starts(series, self._split, settings.context_length, settings.horizon)
        self.sizes = {split: len(starts) for split, starts in self._starts.items()}
        return replace(
            self.survey(), freq=series.freq, **measure(series, self._split, settings.season)
        )

    @property
    def rows(self) -> dict[str, Tensor]:
        """All rows, and their calendar if there is one, as the model gets them; after `setup`."""
        # It is emptied with each set-up, and where a checkpoint has other scales
        if "rows" not in self._samples:
            rows = self._encode(self.series)
            # Other devices than CUDA's may copy the whole strided view for each batch that is
            # gathered from it.
            device = self.choose_device(sum(part.nbytes for part in rows.values()))
            self._samples["rows"] = {name: part.to(device) for name, part in rows.items()}
        return self._samples["rows"]

    def _encode(self, series: Series) -> dict[str, Tensor]:
        raw = [torch.tensor(series.table.to_numpy())]
        if self.metadata.covariates:
            raw.append(make_calendar(series.times, self.metadata.covariates))
        return self.serving().encode(*raw)

    def samples(self, split: str) -> Windows:
        return Windows(self.rows, self._starts[split], self.context_length, self.horizon)

    def serving(self) -> SeriesServing:
        return SeriesServing(self.metadata)

    # ---- baselines

    def ridge(self, context_length: int) -> Tensor:
        """Fit a ridge regression on the training rows, its penalty chosen on the validation rows.

        Args:
            context_length: Rows to forecast from.

        Returns:
            float32 (horizon, context_length), on the CPU: one linear map from scaled past to scaled
            forecast for all channels.
        """
        starts = find_starts(self.series, self._split, context_length, self.horizon)
        return fit_ridge(self.rows["past"], starts, context_length, self.horizon)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Errors of simple forecasts over all test windows, also where `trainer.limit_test_batches`
        cuts the test.

        Returns:
            For "repeat last", "seasonal naive" (where the past holds a season) and "ridge":
            "test/mse" and "test/mae" of the scaled series, and "test/mase".
        """
        # Each is a linear map from the last rows to the forecast, (horizon, rows).
        seasons = {"repeat last": 1, "seasonal naive": self.metadata.season}
        steps = torch.arange(self.horizon)
        maps = {
            name: torch.eye(rows)[steps % rows]
            for name, rows in seasons.items()
            if rows <= self.context_length
        }
        maps["ridge"] = self.ridge(self.context_length)
        return {name: self._score(weight) for name, weight in maps.items()}

    def _score(self, weight: Tensor) -> dict[str, float]:
        """Return the mean errors of a linear map over all test windows."""
        windows, metric = self.samples("test"), ForecastMetrics(self.num_targets)
        metric.naive_error = self.naive_error
        for index in torch.arange(len(windows)).split(self.batch_size):
            batch = windows[index]
            forecast = weight @ batch["past"][:, -weight.shape[1] :].cpu()
            # No interval
            metric.update(
                pad(forecast.unsqueeze(-1), (0, 2), value=torch.nan), batch["future"].cpu()
            )
        return {f"test/{name}": value.item() for name, value in metric.compute().items()}

    # ---- prediction

    def open_input(self, source: str) -> Windows:
        self._predicted = read_last_rows(source, vars(self.metadata), **self.reading)
        rows = self._encode(self._predicted)
        begins = torch.arange(0, len(rows["past"]), self.context_length + self.horizon)
        windows = Windows(rows, begins, self.context_length, self.horizon)
        del windows.views["future"]  # it is not known
        return windows

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per series and time that follows `predict_input`, in the user's
        units.

        Args:
            outputs: Tensors (series, horizon, channel, 3): forecast, lower and upper bound, scaled;
                bounds are NaN where there are none, and empty in the file.
            path: The file; one that is there is replaced.

        Raises:
            UserError: A forecast is not finite, or the file can't be written.
        """
        known = self.metadata
        future = self._predicted.table.groupby(level=0, sort=False).tail(self.horizon).index
        series, times = future.get_level_values(0), future.get_level_values(1).astype(str)
        numbers = torch.stack(self.serving().decode(torch.cat(outputs).cpu()), dim=-1).flatten(0, 1)
        check_finite(numbers[..., 0], times)

        names = map("".join, product(known.targets, ("", "_lower", "_upper")))
        values = dict(zip(names, numbers.flatten(1).T.tolist(), strict=True))
        columns = {known.series_column: series, known.time_column: times, **values}
        columns.pop(None, None)  # there is one series
        write_predictions(Path(path), columns)
