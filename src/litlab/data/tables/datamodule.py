"""Rows of a table, for training, evaluation and prediction."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from litlab.data.classes import Balance, warn_of_like_classes
from litlab.data.frames import (
    Column,
    FileFormat,
    Frame,
    Policy,
    UserFile,
    check_columns,
    drop_bad_rows,
    read_frame,
    read_times,
    to_numbers,
)
from litlab.data.module import ExperimentData
from litlab.data.predictions import PREDICTED, check_finite, write_classes, write_predictions
from litlab.data.split import SPLITS, split_samples
from litlab.data.tables.encoding import (
    choose_task,
    lay_out,
    lay_out_target,
    measure,
    note_cells,
    read_columns,
    read_rows,
    tell_of_unseen,
)
from litlab.data.tables.generated import TARGETS, make_customers
from litlab.data.tables.memory import EncodedRows
from litlab.data.tables.metadata import TabularMetadata, Task
from litlab.data.tables.serving import TabularServing
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed


def _tell(read: Callable[[TabularMetadata], Any], task: Task | None = None) -> Any:
    """Return a property of the data that its metadata tells; a UserError where it is for another task."""

    def get(data: "TabularData") -> Any:
        known = data.known
        if task not in (None, known.task):
            model = {"classification": "Classifier", "regression": "Regressor"}[known.task]
            raise UserError(
                f"model: this one is for {task}, but {', '.join(known.targets)} is for {known.task}; use --model "
                f"{model}, or set data.task {task}"
            )
        return read(known)

    return property(get)


class TabularData(ExperimentData):
    """Rows of numbers and categories with a target to classify or regress: your own file, or generated.

    A batch is (inputs, target). Inputs are a dict that the network gets as keyword arguments: ``numbers``, float32 of
    shape (batch, column), standardised by the training rows, and ``categories``, int64 of shape (batch, column). One of
    them may have no columns. The target is int64 of shape (batch,) in classification, float32 of shape (batch, target)
    in regression, in the units of the file. In prediction a batch is the dict alone.

    A missing number is the mean of the training rows; columns that miss some in training have a second input which says
    so. A category that is missing, or came less than twice in training, has number 0, the others are counted from 1.

    Args:
        dataset: `csv` for your own file, `generated` for made-up customers (to predict `churn` or `spend`).
        path: `csv`: the file, of CSV (.gz too), Parquet, Excel or JSON lines; in Python a pandas DataFrame, too.
        target: Column to predict; in regression it can be several.
        task: What to do with it. null: a column of words, or of at most 20 different whole numbers that come 5 times
            on average, is classified, any other regressed.
        categories: Columns of numbers that stand for categories, such as zip codes; those of words are categories
            anyway.
        ignore: Columns that are left out.
        split_column: Column that says train, val or test.
        group_column: Column of groups, such as patients: each is in one split only. It is no input.
        time_column: Column of times or numbers: the latest rows are for the test, those before for validation. It is
            no input.
        val_fraction: Fraction of the rows kept for validation, where `split_column` has no val; 0 for none.
        test_fraction: Fraction of the rows kept for the test, where there is no `split_column`; 0 for none.
        fold: The rows are divided into folds, and one of them is the test: `0/5` is the first of five. With
            `time_column` training is on the rows before it. Rows of classes that are then only in the test are left
            out. `fit --folds 5` runs all of them.
        batch_size: Rows per batch and process.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts (`sqrt`); null: as they
            are. An epoch keeps its length, so samples of rare classes come several times, others not in every epoch.
        bad_rows: Rows that can't be used (no target, text for a number, too many cells, ...): `error` names them,
            `drop` leaves them out and says how many there are.
        delimiter: What separates the cells of a CSV file; null: the one of comma, semicolon, tab and bar that fits.
        decimal: Decimal sign of the numbers.
        missing: Words that stand for a missing value, beside those of pandas (NA, NaN, null, None, ...).
        time_format: How `time_column` is written, such as ``%d/%m/%Y``, where days and months could be confused.
        seed: Seed of the order; that of the run (seed_everything) when left out. The split is the same for every seed.
        **loader: drop_last, num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: the data is missing or wrong.
    """

    item, kind = "rows", "table"
    input_kinds = "a table"
    metadata_type = TabularMetadata

    def __init__(
        self,
        dataset: Literal["csv", "generated"] | None = None,
        path: UserFile | None = None,
        *,
        target: list[str] | str | None = None,
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
        # Not for the logger: the model has settings of the same names. A frame can't be in a checkpoint.
        self.save_hyperparameters(logger=False, ignore=["path"])
        self.settings: Any = self.hparams
        self.choose_source(dataset, path)
        self.balance = balance
        self.form = FileFormat(delimiter, decimal, tuple(missing), time_format)
        self.targets = [target] if isinstance(target, str) else list(target or [])
        if not self.targets:
            raise UserError("data.target: it is not set; name the column to predict")

        # The column that splits, by its setting.
        units = {"split_column": split_column, "group_column": group_column, "time_column": time_column}
        self.units = {setting: name for setting, name in units.items() if name}
        if len(self.units) > 1:
            raise UserError(f"data.{' and data.'.join(self.units)}: each of them splits the rows; set one")

    # ---- from a file to a table

    @cached_property
    def table(self) -> dict[str, Frame]:
        """The rows of each split, nothing scaled yet: numbers are float64, categories and classes texts.

        Raises:
            UserError: The file or a column is missing or wrong, or there are bad rows which may not be left out.
        """
        import pandas as pd

        form, where, settings = self.form, self.source_name, self.settings
        raw = make_customers() if self.generated else read_frame(self.path, form, bad_rows=settings.bad_rows)
        apart = [*self.targets, *settings.ignore, *self.units.values()]
        check_columns(raw, where, dict.fromkeys([*apart, *settings.categories], "correct the setting that names it"))
        several = len(self.targets) > 1
        task = "regression" if several else settings.task or choose_task(raw[self.targets[0]], form, where)

        # All columns are read before a bad row is dropped, so that one message has all of them.
        inputs = raw.columns.difference([*apart, *(TARGETS if self.generated else ())], sort=False)
        is_text = {name: True if name in settings.categories else None for name in inputs}
        is_text |= dict.fromkeys(self.targets, task == "classification")
        columns, problems = read_columns(raw, is_text, form, where)
        columns |= {name: self._read_unit(setting, raw[name]) for setting, name in self.units.items()}
        for name in [*self.targets, *self.units.values()]:
            note_cells(problems, raw[name], columns[name].isna())
        frame = drop_bad_rows(pd.DataFrame(columns), problems, settings.bad_rows, where)

        labels = None
        if task == "classification":
            labels, classes = pd.factorize(frame[self.targets[0]], sort=True)
            warn_of_like_classes(classes, where)
        units = {setting: frame.pop(name).to_numpy() for setting, name in self.units.items()}
        split = split_samples(
            units.get("split_column", np.full(len(frame), "train")),
            settings.val_fraction,
            0.0 if "split_column" in units else settings.test_fraction,
            labels=labels,
            groups=units.get("group_column"),
            times=units.get("time_column"),
            fold=settings.fold,
        )
        if "train" not in split:
            raise UserError(f"data.split_column: no row of {where} is for train; mark the training rows")
        return {name: frame[split == name] for name in SPLITS}

    def _read_unit(self, setting: str, cells: Column) -> Column:
        """Return what tells the split of each row, its split, group or time; missing where it is none."""
        if setting == "time_column":
            numbers, words = to_numbers(cells, self.form, self.source_name)
            return read_times(cells, self.form, self.source_name)[0] if words.any() else numbers
        return cells.where(cells.isin(SPLITS)) if setting == "split_column" else cells

    # ---- what is known before `setup`; from the checkpoint where one was loaded

    @cached_property
    def _measured(self) -> TabularMetadata:
        return measure(self.table, self.targets, self.settings.ignore, self.generated, self.source_name)

    @property
    def known(self) -> TabularMetadata:
        """The metadata: of the checkpoint where one was loaded, else of this table."""
        return self.metadata if self.restored else self._measured

    num_numbers = _tell(lambda known: len(known.numbers) + len(known.indicated))
    category_sizes = _tell(lambda known: [1 + len(texts) for texts in known.categories.values()])
    num_outputs = _tell(lambda known: len(known.class_names or known.targets))
    class_names = _tell(lambda known: known.class_names)
    num_classes = _tell(lambda known: len(known.class_names), "classification")
    target_names = _tell(lambda known: known.targets, "regression")
    target_mean = _tell(lambda known: known.target_mean, "regression")
    target_std = _tell(lambda known: known.target_std, "regression")

    @property
    def has_test(self) -> bool:
        return not self.table["test"].empty

    @property
    def description(self) -> str:
        """The table in one line; with the numbers of rows after `setup`."""
        inputs = f"{len(self.known.numbers)} numbers and {len(self.known.categories)} categories"
        return self.describe(f"rows of {inputs}, {self.known.task} of {', '.join(self.known.targets)}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever a cell or a split does."""
        from pandas.util import hash_pandas_object

        hash_rows: Any = hash_pandas_object
        digests = [hash_rows(rows, index=False).to_numpy().tobytes() for rows in self.table.values()]
        return hashlib.sha256(b"next".join(digests)).hexdigest()[:12]

    # ---- from a table to memory

    def open(self, stage: str | None) -> TabularMetadata:
        self.sizes = {split: len(rows) for split, rows in self.table.items() if len(rows)}
        if stage in ("fit", None) and not self.restored:
            from litlab.data.tables.leaks import warn_of_leaks

            known = self._measured
            names = [*known.numbers, *known.categories]
            warn_of_leaks(self._lay_out("train"), self._lay_out("test"), names, self.source_name)
        return self._measured

    def samples(self, split: str) -> EncodedRows:
        rows = self.table[split]
        tensors = [*self._encode(rows), torch.from_numpy(lay_out_target(rows, self.known))]
        device = self.choose_device(sum(tensor.nbytes for tensor in tensors))
        return EncodedRows(*(tensor.to(device) for tensor in tensors))

    def labels(self, split: str) -> Tensor | None:
        return torch.from_numpy(lay_out_target(self.table[split], self.known)) if self.class_names else None

    def _encode(self, rows: Frame) -> list[Tensor]:
        """Return numbers and categories of some rows as the model gets them."""
        raw, serving = lay_out(rows, vars(self.known)), TabularServing(self.known)
        return list(serving.encode(*(torch.from_numpy(raw[spec.name]) for spec in serving.inputs)).values())

    def _lay_out(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets of a split, not scaled."""
        rows = self.table[split]
        return np.hstack(list(lay_out(rows, vars(self.known)).values())), lay_out_target(rows, self.known)

    def serving(self) -> TabularServing:
        return TabularServing(self.metadata)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of scikit-learn's methods with the same training rows, see `score_baselines`."""
        from litlab.data.tables.baselines import score_baselines

        names = [] if self.class_names else self.targets
        return score_baselines(self._lay_out("train"), self._lay_out("test"), len(self.known.numbers), names)

    # ---- prediction

    def open_input(self, source: str) -> EncodedRows:
        rows = read_rows(source, vars(self.metadata), self.form, "--input", self.settings.bad_rows)
        tell_of_unseen(rows, self.metadata.categories, source)
        self._predicted = rows.index.tolist()
        return EncodedRows(*self._encode(rows))

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per row of `predict_input`: class and probabilities, or a number for each target.

        Args:
            outputs: Of the batches in order: probabilities, shape (batch, class), or predictions, (batch, target).
            path: The file; one that is there is replaced.
        """
        rows, predicted = {"row": self._predicted}, torch.cat([output.cpu() for output in outputs])
        if self.class_names:
            write_classes(Path(path), rows, self.class_names, predicted)
            return
        check_finite(predicted, self._predicted)
        names = [PREDICTED + name for name in self.target_names]
        write_predictions(Path(path), rows | dict(zip(names, predicted.T.tolist(), strict=True)))
