"""Rows of a table, for training, evaluation and prediction."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    Problems,
    choose_task,
    hash_rows,
    lay_out,
    measure,
    note_cells,
    read_input,
    read_rows,
    read_target,
    read_texts,
    tell_of_unlike,
)
from litlab.data.tables.generated import TARGETS, make_customers
from litlab.data.tables.memory import EncodedRows
from litlab.data.tables.metadata import TabularMetadata, Task
from litlab.data.tables.serving import TabularServing
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval, PositiveInt, Seed


class Table(NamedTuple):
    """A table that is read and split, nothing scaled yet.

    Args:
        frame: The inputs and targets of the rows that can be used; numbers are float64, categories and classes texts.
        task: What is to be done with the targets.
        split: The split of each row; empty where it is left out.
    """

    frame: Frame
    task: Task
    split: Column

    def take(self, split: str) -> Frame:
        """Return the rows of a split."""
        return self.frame[self.split == split]


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
        self.choose_source(dataset, path)
        self.targets = [target] if isinstance(target, str) else list(target or [])
        self.task: Task | None = task
        self.categories, self.ignore = list(categories), list(ignore)
        self.bad_rows: Policy = bad_rows
        self.fractions, self.fold, self.balance = (val_fraction, test_fraction), fold, balance
        self.form = FileFormat(delimiter, decimal, tuple(missing), time_format)
        self._predicted: list[int] = []  # numbers of the rows

        self.units = {"split_column": split_column, "group_column": group_column, "time_column": time_column}
        self.units = {setting: name for setting, name in self.units.items() if name is not None}
        self._check_settings()

    def _check_settings(self) -> None:
        if not self.targets:
            raise UserError("data.target: it is not set; name the column to predict")
        if sum(self.fractions) >= 1:
            raise UserError("data.val_fraction: with data.test_fraction it must be below 1")
        if len(self.units) > 1:
            raise UserError(f"data.{' and data.'.join(self.units)}: each of them splits the rows; set one")

    # ---- from a file to a table

    @cached_property
    def table(self) -> Table:
        """The table with its splits.

        Raises:
            UserError: The file or a column is missing or wrong, or there are bad rows which may not be left out.
        """
        import pandas as pd

        form, where = self.form, self.source_name
        problems: Problems = {}
        raw = make_customers() if self.generated else read_frame(self.path, form, bad_rows=self.bad_rows)
        apart = {*self.targets, *self.ignore, *self.units.values(), *(TARGETS if self.generated else ())}
        check_columns(
            raw, where, dict.fromkeys(sorted({*apart, *self.categories}), "correct the setting that names it")
        )
        inputs = [name for name in raw.columns if name not in apart]
        if not inputs:
            raise UserError(f"{where}: no column is left to predict {', '.join(self.targets)} from; add one")
        task: Task = self.task or ("regression" if self.targets[1:] else choose_task(raw[self.targets[0]], form, where))
        if task == "classification" and self.targets[1:]:
            raise UserError("data.target: several columns can't be classified; name one, or set data.task regression")

        # All columns are read before a bad row is dropped, so that one message has all of them.
        columns = {}
        for name in inputs:
            is_category = name in self.categories
            columns[name] = read_texts(raw[name]) if is_category else read_input(raw[name], form, where, problems)
        for name in self.targets:
            columns[name] = read_target(raw[name], task, form, where, problems)
        units = self._read_units(raw, problems)
        frame = drop_bad_rows(pd.DataFrame(columns), problems, self.bad_rows, where)

        labels = frame[self.targets[0]] if task == "classification" else None
        split = self._divide(units[frame.index], labels)
        if labels is not None:
            warn_of_like_classes(labels.unique(), where)
            unknown = labels[split.ne("") & ~labels.isin(labels[split == "train"])]
            problems = {row: f"class {label!r} is in {split[row]}, not in train" for row, label in unknown.items()}
            frame = drop_bad_rows(frame, problems, "drop" if self.fold else self.bad_rows, where)
        return Table(frame, task, split[frame.index])

    def _read_units(self, raw: Frame, problems: Problems) -> Column:
        """Return what tells the split of each row: its split, group or time."""
        import pandas as pd

        for setting, name in self.units.items():
            units, is_wrong = raw[name], raw[name].isna()
            if setting == "split_column":
                is_wrong = ~units.isin(SPLITS)
            elif setting == "time_column":
                units, has_words = to_numbers(raw[name], self.form, self.source_name)
                if self.form.time_format or has_words.any():
                    units, _ = read_times(raw[name], self.form, self.source_name)
                is_wrong = units.isna()
            note_cells(problems, raw[name], is_wrong, f", which data.{setting} can't be")
            return units
        return pd.Series("train", index=raw.index)

    def _divide(self, units: Column, labels: Column | None) -> Column:
        """Return the split of each row."""
        import pandas as pd

        is_given = "split_column" in self.units or not self.units
        given = units if is_given else pd.Series("train", index=units.index)
        if not given.eq("train").any():
            raise UserError(f"data.split_column: no row of {self.source_name} is for train; mark the training rows")
        val, test = self.fractions
        split = split_samples(
            given.to_numpy(object),
            val,
            0.0 if "split_column" in self.units else test,
            labels=None if labels is None else np.unique(labels.astype(str), return_inverse=True)[1],
            groups=units.to_numpy() if "group_column" in self.units else None,
            times=units.to_numpy() if "time_column" in self.units else None,
            fold=self.fold,
        )
        return pd.Series(split, index=units.index)

    # ---- what is known before `setup`; from the checkpoint where one was loaded

    @cached_property
    def _measured(self) -> TabularMetadata:
        train = self.table.take("train")
        return measure(train, self.table.task, self.targets, self.ignore, self.generated, self.source_name)

    @property
    def _known(self) -> TabularMetadata:
        return self.metadata if self.restored else self._measured

    @property
    def num_numbers(self) -> int:
        """Number of inputs that are numbers, those that tell of missing ones included."""
        return len(self._known.numbers) + len(self._known.indicated)

    @property
    def category_sizes(self) -> list[int]:
        """For each input of categories how many numbers they have, 0 included."""
        return [1 + len(names) for names in self._known.categories.values()]

    @property
    def num_outputs(self) -> int:
        """Number of classes or of targets."""
        return len(self._known.class_names) or len(self._known.targets)

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; none in regression."""
        return self._known.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes; a UserError in regression."""
        return len(self._check_task("classification", "Regressor").class_names)

    @property
    def target_names(self) -> list[str]:
        """Names of the targets; a UserError in classification."""
        return self._check_task("regression", "Classifier").targets

    @property
    def target_mean(self) -> list[float]:
        """Mean of each target in the training rows; a UserError in classification."""
        return self._check_task("regression", "Classifier").target_mean

    @property
    def target_std(self) -> list[float]:
        """Standard deviation of each target in the training rows; a UserError in classification."""
        return self._check_task("regression", "Classifier").target_std

    def _check_task(self, task: Task, other_model: str) -> TabularMetadata:
        known = self._known
        if known.task != task:
            raise UserError(
                f"model: this one is for {task}, but {', '.join(known.targets)} is for {known.task}; use --model "
                f"{other_model}, or set data.task {task}"
            )
        return known

    @property
    def has_test(self) -> bool:
        """Whether there are rows to test on."""
        return "test" in set(self.table.split)

    @property
    def description(self) -> str:
        """The table in one line; with the numbers of rows after `setup`."""
        known = self._known
        classes = f"{len(known.class_names)} classes of " if known.class_names else ""
        inputs = f"{len(known.numbers)} numbers and {len(known.categories)} categories"
        return self.describe(f"rows of {inputs}, {classes}{', '.join(known.targets)}")

    @property
    def fingerprint(self) -> str:
        """Changes whenever a cell or a split does."""
        whole = self.table.frame.assign(**{"": self.table.split})
        digests = hash_rows(whole).to_numpy()
        names = repr((self.table.task, *whole.columns))
        return f"{self.dataset}-{hashlib.sha256(names.encode() + digests.tobytes()).hexdigest()[:12]}"

    # ---- from a table to memory

    def open(self, stage: str | None) -> TabularMetadata:
        counts = self.table.split.value_counts()
        self.sizes = {split: int(counts[split]) for split in SPLITS if split in counts}
        known, where = self._measured, self.source_name
        if stage in ("fit", None) and not self.restored:
            from litlab.data.tables.leaks import warn_of_copies, warn_of_leaks

            warn_of_copies(self.table.frame, self.targets, self.table.split, where)
            warn_of_leaks(*self._lay_out_split("train"), [*known.numbers, *known.categories], where)
        return known

    def samples(self, split: str) -> EncodedRows:
        inputs = self._encode(self.table.take(split), self.source_name)
        rows = EncodedRows(**inputs, target=self._target(split))
        return rows if self.trainer is None else rows.on_device(self.trainer.strategy.root_device)

    def labels(self, split: str) -> Tensor | None:
        return self._target(split) if self.class_names else None

    def _target(self, split: str) -> Tensor:
        rows = self.table.take(split)[self.targets]
        if not self.class_names:
            return torch.from_numpy(rows.to_numpy("float32", copy=True))
        number = {name: place for place, name in enumerate(self.class_names)}
        return torch.tensor([number[label] for label in rows.iloc[:, 0]])

    def _encode(self, rows: Frame, where: object) -> dict[str, Tensor]:
        """Return the inputs of some rows as the model gets them."""
        raw, serving = lay_out(rows, vars(self._known), where), TabularServing(self._known)
        return serving.encode(*(torch.from_numpy(raw[spec.name]) for spec in serving.inputs))

    def serving(self) -> TabularServing:
        return TabularServing(self.metadata)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Test results of scikit-learn's methods with the same training rows, see `score_baselines`."""
        from litlab.data.tables.baselines import score_baselines

        if not self.has_test:
            return {}
        train, test = self._lay_out_split("train"), self._lay_out_split("test")
        return score_baselines(train, test, len(self._known.numbers), [] if self.class_names else self.targets)

    def _lay_out_split(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and targets of a split, not scaled, (row, column) each."""
        raw = lay_out(self.table.take(split), vars(self._known), self.source_name)
        return np.hstack([raw["numbers"], raw["categories"]]), self._target(split).numpy()

    # ---- prediction

    def open_input(self, source: str) -> EncodedRows:
        rows = read_rows(source, vars(self.metadata), self.form, "--input", self.bad_rows)
        tell_of_unlike(rows, self.metadata, source)
        self._predicted = rows.index.tolist()
        return EncodedRows(**self._encode(rows, source))

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per row of `predict_input`: class and probabilities, or a number for each target.

        Args:
            outputs: Of the batches in order: probabilities, shape (batch, class), or predictions, (batch, target).
            path: The file; one that is there is replaced.
        """
        predicted = torch.cat([output.cpu() for output in outputs])
        if self.class_names:
            write_classes(Path(path), {"row": self._predicted}, self.class_names, predicted)
            return
        check_finite(predicted, [f"row {row}" for row in self._predicted])
        columns = {
            PREDICTED + name: column.tolist() for name, column in zip(self.target_names, predicted.T, strict=True)
        }
        write_predictions(Path(path), {"row": self._predicted, **columns})
