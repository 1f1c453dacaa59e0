"""Rows of a table, for training, evaluation and prediction."""

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from litlab.data.frames import FileFormat, Frame, Policy, UserFile, read_table
from litlab.data.generated import make_customers
from litlab.data.module import ExperimentData
from litlab.data.predictions import PREDICTED, check_finite, write_classes, write_predictions
from litlab.data.split import SPLITS, split_samples
from litlab.data.tables.serving import TabularMetadata, TabularServing, Task, measure, read_rows
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed
from litlab.util.classes import Balance, sort_classes

_UNITS = ("split_column", "group_column", "time_column")


class EncodedRows(TensorDataset):
    """Rows in memory: numbers, categories and, but in prediction, targets; indexed by a tensor, it
        returns a batch.

    A batch is a dict of ``numbers``, float32 (batch, column), and ``categories``, int64 (batch,
    column); and the target. An index may be that of a row plus a multiple of their number.
    """

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    def __getitem__(self, index: Tensor) -> Any:
        rows = (index % len(self)).to(self.device, non_blocking=True)
        numbers, categories, *target = (tensor.index_select(0, rows) for tensor in self.tensors)
        inputs = {"numbers": numbers, "categories": categories}
        return (inputs, *target) if target else inputs


class TabularData(ExperimentData):
    """Rows of numbers and categories with a target to classify or regress: your own file, or
        generated.

    A batch is (inputs, target). Inputs are a dict that the network gets as keyword arguments:
    ``numbers``, float32 of shape (batch, column), standardised by the training rows, and
    ``categories``, int64 of shape (batch, column). One of them may have no columns. The target is
    int64 of shape (batch,) in classification, float32 of shape (batch, target) in regression, in
    the units of the file. In prediction a batch is the dict alone.

    A missing number is the mean of the training rows; columns that miss some in training have a
    second input which says so. A category that is missing, or came less than twice in training, has
    number 0, the others are counted from 1.

    Args:
        dataset: `csv` for your own file, `generated` for made-up customers (to predict `churn` or
            `spend`).
        path: `csv`: the file, of CSV (.gz too), Parquet, Excel or JSON lines; in Python a pandas
            DataFrame, too.
        target: Column to predict; in regression it can be several.
        task: What to do with it. null: a column of words, or of at most 20 different numbers, is
            classified, any other regressed.
        categories: Columns of numbers that stand for categories, such as zip codes; those of words,
            or of a single number, are categories anyway.
        ignore: Columns that are left out.
        split_column: Column that says train, val or test.
        group_column: Column of groups, such as patients: each is in one split only. It is no input.
        time_column: Column of times or numbers: the latest rows are for the test, those before for
            validation. It is no input.
        val_fraction: Fraction of the rows kept for validation, where `split_column` has no val; 0
            for none.
        test_fraction: Fraction of the rows kept for the test, where there is no `split_column`; 0
            for none.
        fold: The rows are divided into folds, and one of them is the test: `0/5` is the first of
            five. With `time_column` training is on the rows before it. Rows of classes that are
            then only in the test are left out. `fit --folds 5` runs all of them.
        batch_size: Rows per batch and process.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts
            (`sqrt`); null: as they are. An epoch keeps its length, so samples of rare classes come
            several times, others not in every epoch.
        bad_rows: Rows that can't be used (no target, text for a number, too many cells, ...):
            `error` names them, `drop` leaves them out and says how many there are.
        delimiter: What separates the cells of a CSV file; null: the one of comma, semicolon, tab
            and bar that fits.
        decimal: Decimal sign of the numbers.
        missing: Words that stand for a missing value, beside those of pandas (NA, NaN, null, None,
            ...).
        time_format: How `time_column` is written, such as ``%d/%m/%Y``, where days and months could
            be confused.
        seed: Seed of the order; that of the run (seed_everything) when left out. The split is the
            same for every seed.
        **loader: drop_last, num_workers, pin_memory, persistent_workers and prefetch_factor, as of
            `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or wrong.
    """

    item, kind = "rows", "table"
    metadata_type = TabularMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        target: list[str] | str,
        task: Task | None = None,
        categories: list[str] = [],  # noqa: B006 - lists are not changed
        ignore: list[str] = [],  # noqa: B006
        split_column: str | None = None,
        group_column: str | None = None,
        time_column: str | None = None,
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.2,
        fold: str | None = None,
        batch_size: PositiveInt = 64,
        balance: Balance | None = None,
        bad_rows: Policy = "error",
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        missing: list[str] = [],  # noqa: B006
        time_format: str | None = None,
        seed: Seed | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, **loader)
        # Not for the logger: the model has settings of the same names. A frame can't be in a
        # checkpoint.
        self.save_hyperparameters(logger=False, ignore=["path"])
        self.settings: Any = self.hparams
        self.choose_source(dataset, path)
        self.balance = balance
        self.form = FileFormat(delimiter, decimal, tuple(missing), time_format)
        self.targets = [target] if isinstance(target, str) else list(target)
        if group_column and time_column:
            raise UserError(
                "data.group_column, data.time_column: each of them splits the rows; set one"
            )

    # ---- from a file to a table

    @cached_property
    def table(self) -> dict[str, Frame]:
        """The rows of each split, nothing scaled yet: float64, texts, and a target of classes as
            pandas categories.

        Raises:
            UserError: The file or a column is missing or wrong, or there are bad rows which may not
                be left out.
        """
        import pandas as pd

        settings = self.settings
        source = make_customers(self.targets) if self.generated else self.path

        # How each column is read. All are read before a bad row is left out, so that one message
        # has all of them.
        task = "regression" if len(self.targets) > 1 else settings.task
        units = {settings[setting]: setting for setting in _UNITS if settings[setting]}
        kinds = dict.fromkeys(settings.ignore) | dict.fromkeys(settings.categories, "category")
        kinds |= dict.fromkeys(self.targets, task or "target") | units
        frame = read_table(source, kinds, self.form, others="input", bad_rows=settings.bad_rows)

        target = self.targets[0]
        labels = None
        if frame[target].dtype == "string":
            class_names = sort_classes(frame[target])
            frame[target] = pd.Categorical(frame[target], class_names)
            labels = frame[target].cat.codes.to_numpy("int64")
        cells = {setting: frame.pop(name).to_numpy() for name, setting in units.items()}
        given = cells.get("split_column", np.full(len(frame), "train"))
        if "train" not in given:
            raise UserError("data.split_column: no row is for train; mark the training rows")
        split = split_samples(
            given,
            settings.val_fraction,
            0.0 if "split_column" in cells else settings.test_fraction,
            labels=labels,
            groups=cells.get("group_column"),
            times=cells.get("time_column"),
            fold=settings.fold,
        )
        return {name: frame[split == name] for name in SPLITS}

    # ---- what models and messages are told; before `setup`, too

    @property
    def description(self) -> str:
        """The table in one line; with the numbers of rows after `setup`."""
        known = self.known
        inputs = f"{len(known.numbers)} numbers and {len(known.categories)} categories"
        return self.describe(f"rows of {inputs}, {known.task} of {', '.join(known.targets)}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever a cell or a split does."""
        import pandas as pd
        from pandas.util import hash_pandas_object

        hash_rows: Any = hash_pandas_object
        hashes = hash_rows(pd.concat(self.table).droplevel(1))  # whose index is the split
        return f"{hashes.sum():016x}"

    # ---- from a table to memory

    def open(self, stage: str | None) -> TabularMetadata:
        self.sizes = {split: len(rows) for split, rows in self.table.items() if len(rows)}
        metadata = measure(self.table["train"], self.targets, self.source_name)
        if stage in ("fit", None):
            from litlab.data.tables.baselines import warn_of_leaks

            warn_of_leaks(self.table["train"], self.table["test"], self.targets, self.source_name)
        return metadata

    def samples(self, split: str) -> EncodedRows:
        rows = self.table[split]
        return self._encode(rows, torch.tensor(self.known.lay_out_target(rows)))

    def _encode(self, rows: Frame, *target: Tensor) -> EncodedRows:
        numbers, categories = map(torch.tensor, self.known.lay_out(rows))
        tensors = [*self.serving().encode(numbers, categories).values(), *target]
        device = self.choose_device(sum(tensor.nbytes for tensor in tensors))
        return EncodedRows(*(tensor.to(device) for tensor in tensors))

    def labels(self, split: str) -> Tensor | None:
        return (
            torch.tensor(self.known.lay_out_target(self.table[split])) if self.class_names else None
        )

    def serving(self) -> TabularServing:
        return TabularServing(self.metadata)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of scikit-learn's methods with the same training rows, see
        `score_baselines`.
        """
        from litlab.data.tables.baselines import score_baselines

        return score_baselines(self.table["train"], self.table["test"], self.known)

    # ---- prediction

    def open_input(self, source: str) -> EncodedRows:
        rows = read_rows(source, self.metadata, self.form, "--input", self.settings.bad_rows)
        self._predicted = rows.index.tolist()
        return self._encode(rows)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per row of `predict_input`: class and probabilities, or a number
        for each target.

        Args:
            outputs: Of the batches in order: probabilities, shape (batch, class), or predictions,
                (batch, target).
            path: The file; one that is there is replaced.
        """
        rows, predicted = {"row": self._predicted}, torch.cat([output.cpu() for output in outputs])
        if self.class_names:
            write_classes(Path(path), rows, self.class_names, predicted)
            return
        check_finite(predicted, self._predicted)
        columns = {
            PREDICTED + name: predicted[:, place].tolist()
            for place, name in enumerate(self.target_names)
        }
        write_predictions(Path(path), rows | columns)
