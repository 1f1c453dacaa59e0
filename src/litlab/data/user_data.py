"""The user's own files: settings that all kinds of data share, stated once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from litlab.data.columns import Column, Kind, fit_column, read_columns
from litlab.data.files import (
    FileFormat,
    Frame,
    Policy,
    Source,
    check_columns,
    name_source,
    read_cells,
)
from litlab.data.module import ExperimentData
from litlab.data.predictions import name_rows, write_outputs
from litlab.data.split import Split
from litlab.data.target import Target, Task, fit_classes, fit_labels, fit_numbers
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval
from litlab.util.classes import Balance
from litlab.util.text import add_to_list


@dataclass(frozen=True)
class Table:
    """The rows of a table, read, and nothing scaled yet.

    Args:
        inputs: The input columns.
        outcomes: The columns of the target.
        split: The split of each row, str of shape (row,); empty where it is left out.
        columns: What the input columns are.
        target: What is to be predicted.
    """

    inputs: Frame
    outcomes: Frame
    split: np.ndarray
    columns: dict[str, Column]
    target: Target

    def select(self, split: str) -> Frame:
        """Return the rows of a split, inputs and outcomes."""
        return self.inputs.join(self.outcomes)[self.split == split]


class UserData(ExperimentData):
    """A DataModule that reads tables of the user's.

    Args:
        target: Column to predict; several in regression, or one for each label.
        task: What to do with it. null: a column of words, or of at most 20 different numbers, is
            classified, any other regressed. `labels`: several of them may be true.
        label_separator: What stands between labels in a single column; null: each label has a
            column of its own, with 1 or 0, or yes or no.
        split_column: Column that says train, val or test.
        group_column: Column of groups, such as patients: each is in one split only. It is no
            input.
        time_column: Column of times or numbers: the latest samples are for the test, those before
            for validation. It is no input.
        cut: Times of `time_column` at which validation and test begin; a single one: the test.
        val_fraction: Fraction of the samples kept for validation, where there is no such split; 0
            for none.
        test_fraction: Fraction of the samples kept for the test, where there is no such split; 0
            for none.
        fold: The samples are divided into folds, and one of them is the test: `0/5` is the first of
            five. With `time_column` training is on what is before it. `fit --folds 5` runs all.
        id_column: Column that names the samples in a file of predictions, beside their rows. It is
            no input.
        bad_rows: Rows that can't be used (no target, text for a number, too many cells, ...):
            `error` names them, `drop` leaves them out and says how many there are.
        balance: Draw classes in training evenly (`even`), or by the square root of their counts
            (`sqrt`); null: as they are. An epoch keeps its length, so samples of rare classes come
            several times, others not in every epoch.
        delimiter: What separates the cells of a CSV file; null: the one of comma, semicolon, tab
            and bar that fits.
        decimal: Decimal sign of the numbers.
        thousands: What stands between groups of three digits, as the comma in 1,129; null: nothing.
        missing: Words that stand for a missing value in any column. In columns of numbers NA, NaN,
            null and None do anyway; elsewhere they are words.
        time_format: How times are written, such as ``%d/%m/%Y``, where days and months could be
            confused.
        **loader: batch_size, seed, drop_last, num_workers, pin_memory, persistent_workers and
            prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid, or two of them exclude each other.
    """

    column_names: list[str] | None = None  # where a file has no row of names
    target_kind: Kind | None = None  # what the cells of the target are; None: as the task wants
    row_names: dict[str, list[Any]]  # what identifies the rows of `predict_input`, by column

    def __init__(
        self,
        *,
        target: list[str] | str = "label",
        task: Task | None = None,
        label_separator: str | None = None,
        split_column: str | None = None,
        group_column: str | None = None,
        time_column: str | None = None,
        cut: list[str] = [],  # noqa: B006 - lists are not changed
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.2,
        fold: str | None = None,
        id_column: str | None = None,
        bad_rows: Policy = "error",
        balance: Balance | None = None,
        delimiter: str | None = None,
        decimal: Literal[".", ","] = ".",
        thousands: str | None = None,
        missing: list[str] = [],  # noqa: B006
        time_format: str | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        self.targets = [target] if isinstance(target, str) else list(target)
        if label_separator is not None and len(self.targets) > 1:
            raise UserError(
                "data.label_separator: it is for a single column of labels; leave it out"
            )
        # Left out, it follows from other settings; else it is None until the cells are there
        several = "regression" if len(self.targets) > 1 else None
        self.task = task or ("labels" if label_separator else several)
        self.label_separator = label_separator
        self.split = Split(
            split_column, group_column, time_column, tuple(cut), val_fraction, test_fraction, fold
        )
        self.form = FileFormat(delimiter, decimal, thousands, tuple(missing), time_format)
        self.id_column, self.balance = id_column, balance
        self.bad_rows: Policy = bad_rows

    @property
    def where(self) -> str:
        """What messages call the training file."""
        return name_source(self.path, "data.path")

    def fit_table(
        self, raw: Frame, kinds: dict[str, Any], predefined: np.ndarray | None = None
    ) -> Table:
        """Decide what the cells of the training file mean, read them, and split the rows.

        Args:
            raw: As of `read_cells`.
            kinds: The input columns, and what each is, as of `fit_column`.
            predefined: As of `split_samples`.

        Raises:
            UserError: A column is missing or wrong, or there are bad rows which may not be left
                out.
        """
        # What each column is to be read as. The target and the columns that split are no inputs
        of_task = {"regression": "number", None: "target"}
        kind = self.target_kind or of_task.get(self.task, "category")
        apart = dict.fromkeys(self.targets, kind)
        apart |= self.split.columns
        inputs = [name for name in kinds if name not in apart and name != self.id_column]
        kinds = {name: kinds[name] for name in inputs} | apart
        columns = self.fit_columns(raw, kinds, self.where)

        # All cells are read before a bad row is left out, so that one message has all of them. A
        # cell with several labels may be empty, if none is true, and so may a text, if another
        # column has one; the target and what splits may not
        needed = set(apart if self.label_separator is None else self.split.columns)
        texts = [name for name in inputs if kinds[name] == "text"]
        needed |= set(texts if len(texts) == 1 else ())
        rows = read_columns(
            raw,
            columns,
            self.form,
            self.where,
            needed=needed,
            bad_rows=self.bad_rows,
            remedies=self._find_remedies(kinds),
        )

        # `predefined` is of all rows of the file, bad ones included
        if predefined is not None:
            predefined = predefined[raw.index.get_indexer(rows.index)]
            if "train" not in predefined:
                raise UserError(
                    f"{self.where}: none of the training rows can be used; correct them"
                )

        # Each split gets its share of every class. The target is found after the split, as
        # its classes, mean and deviation are those of the training rows
        first = self.targets[0]
        has_classes = columns[first].kind == "category" and self.task != "labels"
        labels = rows[first].factorize(sort=True)[0] if has_classes else None
        split = self.split.divide(rows, labels, predefined)
        target = self.fit_target(rows, columns, split, self.where)
        input_columns = {name: columns[name] for name in inputs}
        return Table(rows[inputs], rows[self.targets], split, input_columns, target)

    def split_known(self, cells: Frame, target: Target, predefined: np.ndarray | None) -> Table:
        """Split public or made-up samples, of which the target is known.

        Args:
            cells: The column of the target.
            target: What is to be predicted.
            predefined: As of `split_samples`.

        Raises:
            UserError: They are to be split by a column that only a file of the user's could have.
        """
        remedies = dict.fromkeys(self.split.columns, "leave out the setting that names it")
        check_columns(cells, self.source_name, remedies)
        split = self.split.divide(cells, target.encode(cells), predefined)
        return Table(cells[[]], cells, split, {}, target)

    def fit_target(
        self, rows: Frame, columns: dict[str, Column], split: np.ndarray, where: str
    ) -> Target:
        """Decide what is to be predicted; override it for a target of your own.

        Args:
            rows: All rows, read.
            columns: What their columns are.
            split: The split of each, str of shape (row,); empty where it is left out.
            where: What messages call the file.
        """
        first, train = self.targets[0], rows[split == "train"]
        if columns[first].kind == "number":
            return fit_numbers(train, self.targets, where)
        if self.task == "labels":
            return fit_labels(train, self.targets, self.label_separator, where)
        return fit_classes(rows, first, split, where)

    def fit_columns(self, raw: Frame, kinds: dict[str, Any], where: str) -> dict[str, Column]:
        """Decide what the cells of some columns mean, see `fit_column`; refuse a file without
        them.
        """
        # A missing column's message has the setting that names it: all settings of this module are
        # looked through, as a kind of data has more than those stated here
        remedies = dict.fromkeys(kinds, "correct it")
        for key, value in {**self.hparams, "target": vars(self).get("targets")}.items():
            # A word that is no list, such as "word" of a tokenizer, is a column's name in some only
            named = value if isinstance(value, list) else [value] * key.endswith("_column")
            remedies |= {
                name: f"correct it, or set --data.{key}" for name in remedies if name in named
            }
        check_columns(raw, where, remedies)
        ways_out = self._find_remedies(kinds)  # of a column of numbers in which some are none
        return {
            name: fit_column(raw[name], kind, self.form, where, ways_out.get(name, ""))
            for name, kind in kinds.items()
        }

    def _find_remedies(self, kinds: dict[str, Any]) -> dict[str, str]:
        """Return the settings by which columns that are taken for numbers would be categories."""
        remedies = {}
        for name, kind in kinds.items():
            # Also where task: regression has made numbers of it
            if kind == "target" or [name] == vars(self).get("targets"):
                remedies[name] = "--data.task classification"
            elif kind == "input" and "categories" in self.hparams:  # a setting of tables alone
                remedies[name] = add_to_list("--data.categories", [name])
        return remedies

    def describe_columns(self, table: Table) -> dict[str, Any]:
        """Return what `TargetMetadata` has of a table."""
        return {
            "target": table.target,
            "columns": list(table.columns.values()),
            "form": self.form,
        }

    def read_input(self, source: Source) -> Frame:
        """Read the rows that ``predict --input`` names, by the columns of the training file."""
        # By the format of this run's settings, as the new file may be written in another way
        raw = self.read_cells(source)
        where = name_source(source, "--input")
        rows = self.facts.read(raw, where, self.form, self.bad_rows)
        # Bad rows are left out by now
        self.row_names = name_rows(raw.loc[rows.index], self.id_column, "--input")
        return rows

    def read_cells(self, source: Source, setting: str = "--input") -> Frame:
        """Read the cells of a file, as `litlab.data.files.read_cells`."""
        return read_cells(
            source, self.form, setting=setting, names=self.column_names, bad_rows=self.bad_rows
        )

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a file with a row per row of `predict_input`: what it is, and what is predicted.

        Args:
            outputs: Of the batches in order, each of shape (batch, name), as of `Target.tabulate`.
            path: The file; one that is there is replaced.
        """
        predicted = torch.cat([output.cpu() for output in outputs])
        write_outputs(Path(path), self.row_names, self.metadata.target, predicted)
