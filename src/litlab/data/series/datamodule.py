"""Windows of time series, for training, evaluation and forecasting."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from pandas.util import hash_pandas_object
from torch import Tensor
from torch.nn.functional import pad

from litlab.data.columns import Column
from litlab.data.files import Frame, UserFile, name_source
from litlab.data.generated import SERIES_COLUMNS, generate_series
from litlab.data.predictions import check_finite, write_predictions
from litlab.data.public import PublicFile
from litlab.data.series.metadata import CALENDAR, SeriesMetadata
from litlab.data.series.regular import Gaps, Series, read_last_rows, read_series
from litlab.data.series.serving import SeriesServing
from litlab.data.series.windows import Windows, find_starts, fit_ridge
from litlab.data.split import SPLITS
from litlab.data.target import Numbers, fit_numbers
from litlab.data.user_data import UserData
from litlab.errors import UserError
from litlab.metrics import ForecastMetrics
from litlab.types import PositiveInt
from litlab.util.classes import sort_classes
from litlab.util.text import plural

# Rows of a usual season, by the step: a week of days, a year of weeks, months or quarters
_SEASONS = {"B": 5, "D": 7, "W": 52, "MS": 12, "ME": 12, "QS": 4, "QE": 4}


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


class SeriesData(UserData):
    """Windows of a time series with one or more columns: your own file, a public one (in
    subclasses), or generated.

    The file needs a time column at equal steps (business days, months and years count as equal) and
    columns of numbers; with a `series_column` it may hold several series, of which no window has
    rows of two. The split is by time, for all series at the same one: fractions are of the
    different times. With `fold` the times are cut into one block more than there are folds; the
    test is the block after that number, and all before it is for training and validation. Each
    column is scaled to mean 0 and deviation 1 of the training rows. Windows are at every row; the
    context of validation and test windows may reach back into the rows before, what they forecast
    may not.

    A batch is a dict: `past`, float32 (batch, context_length, channel), scaled; `future`, float32
    (batch, horizon, channel), not in prediction; `covariates`, float32 (batch, context_length +
    horizon, feature), where there are some; `start`, int64 (batch,): row where the window begins.
    In Python, use a Trainer with ``use_distributed_sampler=False``, as the command line does.

    Args:
        dataset: `csv` for your own file, `generated` for a made-up series; null: the public series
            of the class's name, or what `path` tells.
        path: `csv`: the file (CSV, Parquet, Excel or JSON lines, by its suffix), or from Python a
            frame. Public: folder to download to (`data` where null).
        time_column: Column of the times. With UTC offsets they count in UTC, or as the clock on the
            wall where only that goes in equal steps.
        series_column: Column that tells which series a row belongs to; null: there is one.
        targets: Columns to forecast; null: all that hold numbers and are no covariates.
        covariates: What the model is told of past and future. `minute`, `hour`, `weekday`, `day`
            and `month` are sine and cosine of the place in the hour, day, week, month or year. All
            others are columns: numbers are scaled, and of a category each has a feature that is 1
            or 0. `predict` reads what is known of the future from rows behind the last one with a
            target; a column that is constant in each series need not be there.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        freq: Step from row to row, such as 15min, h, D, B, MS, QS, YS (offset aliases of pandas);
            null: that which fits best. Times nearer to the steps than a tenth of one are moved
            there, but not to another day.
        gaps: Whether missing rows and values are errors or interpolated linearly, also from the
            rows after them; never more than a tenth of a column. Windows of validation and test
            that would forecast one are left out.
        season: Rows of a season, for the seasonal naive forecast and for MASE. null: a day's rows;
            7 for daily, 5 for business days, 52 for weekly, 12 for monthly ones; 1 for other steps,
            and where the training rows of a series hold no two seasons.
        batch_size: Windows per batch and process.
        fallback: `generated` uses a made-up one where a public series can't be downloaded, and says
            so; null: an error.
        **options: What reads and splits the rows, as of `UserData`.

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
        covariates: list[str] = [],  # noqa: B006 - lists are not changed
        context_length: PositiveInt = 336,
        horizon: PositiveInt = 96,
        freq: str | None = None,
        gaps: Gaps = "error",
        season: PositiveInt | None = None,
        batch_size: PositiveInt = 64,
        fallback: Literal["generated"] | None = None,
        **options: Any,
    ) -> None:
        # What does not go with series is no setting
        super().__init__(
            target=[], task="regression", label_separator=None, split_column=None,
            group_column=None, time_column=time_column, id_column=None, balance=None,
            batch_size=batch_size, **options,
        )  # fmt: skip
        del self.targets  # the metadata tells them
        self.save_hyperparameters(logger=False, ignore=["path"])  # a frame can't be in a checkpoint
        self.settings: Any = self.hparams
        self.choose_source(dataset, path, fallback)
        # What is forecast of a public or made-up series is known; of a file all columns of numbers
        if targets is None and self.dataset != "csv":
            columns = self.public.columns if self.public else SERIES_COLUMNS
            self.settings.targets = [name for name in columns if name not in covariates]
        named = [*covariates, *(targets or []), time_column]
        twice = [name for name in named if named.count(name) > 1]
        if twice:
            raise UserError(
                f"data.covariates, data.targets: {twice[0]} is named twice, or is the time column, "
                "too; name it once"
            )

    # ---- what models and messages are told

    def survey(self) -> SeriesMetadata:
        """Return what is known before the series is measured; a public one need not be here yet,
        but for columns that are covariates.
        """
        # A network's size follows from the columns alone, so a public series is not downloaded for
        # it; but of covariates each category is a feature
        metadata = self._describe(self.settings.targets or [], [])
        if metadata.targets and not metadata.covariate_columns:
            return metadata
        self.prepare_data()
        return super().survey()

    def _describe(self, targets: list[str], columns: list[Column]) -> SeriesMetadata:
        """Return the metadata before the series is measured."""
        settings = self.settings
        names = "context_length", "horizon", "time_column", "series_column", "freq"
        return SeriesMetadata(
            **{name: settings[name] for name in names},
            columns=columns,
            target=Numbers(list(targets), [], []),  # mean and deviation come with `_measure`
            form=self.form,
            covariates=sorted(settings.covariates, key=lambda name: name not in CALENDAR),
            static=None,
            numbers={},
            categories={},
            season=1,
            naive_error=[],
        )

    @property
    def description(self) -> str:
        """The series in one line."""
        return self.describe(
            f"windows of {self.context_length} + {self.horizon} rows, "
            f"{plural(self.num_targets, 'column')}"
        )

    @property
    def fingerprint(self) -> str:
        """Changes whenever a time or a value of the series does."""
        hash_rows: Any = hash_pandas_object
        return f"{hash_rows(self.series.table).sum():016x}"

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
        settings, source = self.settings, self.path
        covariates = [name for name in settings.covariates if name not in CALENDAR]
        if self.generated:
            source = generate_series(settings.time_column, [*settings.targets, *covariates])
        elif self.dataset is None:
            source = self.path / self.public.name
        where = name_source(source, "data.path")
        raw = self.read_cells(source, "data.path")

        # What each column is to be read as; without targets all others that hold numbers are some
        kinds: dict[Any, Any] = {} if settings.targets else dict.fromkeys(raw, "series")
        kinds |= dict.fromkeys(covariates, "input")
        kinds |= dict.fromkeys(settings.targets or [], "number")
        kinds |= {settings.series_column: "category", settings.time_column: "time"}
        kinds.pop(None, None)  # there is one series
        columns = [
            column
            for name, column in self.fit_columns(raw, kinds, where).items()
            if kinds[name] != "series" or column.kind == "number"
        ]
        # The targets that were not named
        others = [column.name for column in columns if kinds[column.name] == "series"]
        if not (settings.targets or others):
            raise UserError(
                f"{where}: there is no column of numbers besides that of the times; add one"
            )
        metadata = self._describe(settings.targets or others, columns)
        return read_series(raw, metadata, where, gaps=settings.gaps, bad_rows=self.bad_rows)

    def open(self, stage: str | None) -> SeriesMetadata:
        settings = self.settings
        self._split = self._divide()
        lengths = settings.context_length, settings.horizon
        self._starts = find_starts(self.series, self._split, *lengths)
        self.sizes = {split: len(starts) for split, starts in self._starts.items()}
        return self._measure()

    def _divide(self) -> np.ndarray:
        """Return the split of each row, str of shape (row,), empty where it is left out: all series
        are cut at the same time.
        """
        # A public series is split as in published comparisons, unless a setting says otherwise
        times, split = self.series.times.to_numpy("datetime64[ns]"), self.split
        if not (self.dataset or self.generated or split.fold or split.cut):
            return np.repeat([*SPLITS, ""], np.diff([0, *self.public.ends, len(times)]))
        # Of each time once, so that series of different lengths are cut at the same one
        different, inverse = np.unique(times, return_inverse=True)
        return split.divide(pd.DataFrame({split.time: different}))[inverse]

    def _measure(self) -> SeriesMetadata:
        """Measure the training rows of all series together.

        Raises:
            UserError: A column never changes, or its numbers are too large or too small.
        """
        # Mean and deviation of the targets, and of the covariates that are numbers
        metadata = self.series.metadata
        train = self.series.table[self._split == "train"]
        target = fit_numbers(train, metadata.targets, self.where)
        texts = train[metadata.covariate_columns].select_dtypes("string")
        numbers = [name for name in metadata.covariate_columns if name not in texts]
        scales = fit_numbers(train, numbers, self.where)

        # The rows of a season; of hours and minutes those of a day. "W-SUN" is a week, like "W"
        day = pd.date_range("2024-01-01", "2024-01-02", freq=metadata.freq, inclusive="left")
        usual = _SEASONS.get(str(metadata.freq).partition("-")[0]) or len(day) or 1
        season = self.settings.season or usual
        by_series = train[metadata.targets].groupby(level=0)
        if 2 * season > by_series.size().max():
            season = 1
        # What MASE divides by (Hyndman & Koehler 2006): the mean change from season to season
        changes = abs(np.ascontiguousarray(by_series.diff(season).dropna()))
        return replace(
            metadata,
            target=target,
            season=season,
            naive_error=(changes.mean(0) / target.std).tolist(),
            ranges=train[[*metadata.targets, *numbers]].agg(["min", "max"]).to_dict("list"),
            numbers={name: [scales.mean[k], scales.std[k]] for k, name in enumerate(numbers)},
            # "" stands for a missing text, which is none of the categories
            categories={name: sort_classes({*texts[name].dropna()} - {""}) for name in texts},
        )

    @property
    def encoded(self) -> dict[str, Tensor]:
        """All rows, and their covariates if there are some, as the model gets them; after
        `setup`.
        """
        # Once for all splits. `_samples` is emptied with each set-up, and where a checkpoint has
        # other scales
        if "encoded" not in self._samples:
            tensors = self._encode(self.series.table)
            # Other devices than CUDA's may copy the whole strided view for each batch that is
            # gathered from it.
            device = self.choose_device(sum(tensor.nbytes for tensor in tensors.values()))
            self._samples["encoded"] = {name: tensor.to(device) for name, tensor in tensors.items()}
        return self._samples["encoded"]

    def _encode(self, table: Frame) -> dict[str, Tensor]:
        return self.serving().encode(*self.metadata.arrange_inputs(table))

    def samples(self, split: str) -> Windows:
        return Windows(self.encoded, self._starts[split], self.context_length, self.horizon)

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
        return fit_ridge(self.encoded["past"], starts, context_length, self.horizon)

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
            # (horizon, rows) by (batch, rows, channel)
            forecast = weight @ batch["past"][:, -weight.shape[1] :].cpu()
            # The metric takes forecast, lower and upper end: NaN, as there is no interval
            metric.update(
                pad(forecast.unsqueeze(-1), (0, 2), value=torch.nan), batch["future"].cpu()
            )
        return {f"test/{name}": value.item() for name, value in metric.compute().items()}

    # ---- prediction

    def open_input(self, source: str) -> Windows:
        # Each series becomes one window: its last rows, and those to forecast
        raw, where = self.read_cells(source), name_source(source, "--input")
        self._predicted = read_last_rows(
            raw,
            self.metadata,
            where,
            form=self.form,
            gaps=self.settings.gaps,
            bad_rows=self.bad_rows,
        ).table
        encoded = self._encode(self._predicted)
        starts = torch.arange(0, len(encoded["past"]), self.context_length + self.horizon)
        windows = Windows(encoded, starts, self.context_length, self.horizon)
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
        # A row of the file for each series and time, with a column for each forecast and its ends
        metadata = self.metadata
        future = self._predicted.groupby(level=0, sort=False).tail(self.horizon).index
        series, times = future.get_level_values(0), future.get_level_values(1).astype(str)
        numbers = torch.stack(self.serving().decode(torch.cat(outputs).cpu()), dim=-1).flatten(0, 1)
        check_finite(numbers[..., 0], times)  # the ends of an interval may be NaN

        names = [name + end for name in metadata.targets for end in ("", "_lower", "_upper")]
        columns = {metadata.series_column: series, metadata.time_column: times}
        columns |= dict(zip(names, numbers.flatten(1).T.numpy(), strict=True))
        columns.pop(None, None)  # there is one series
        write_predictions(Path(path), columns)
