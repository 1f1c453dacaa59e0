"""Where a table comes from, and which of its columns and rows are for what."""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.bad_rows import BadRows, Policy, settle, settle_and_tell
from litlab.data.labels import in_order, label_notes, shortened
from litlab.data.numbers import read_numbers
from litlab.data.tables.generated import generated_cells
from litlab.data.tables.metadata import Task
from litlab.data.tables.reading import Cells, input_columns, read_cells, read_targets
from litlab.data.tables.split import SPLITS, by_row, by_unit
from litlab.data.text_file import TextFile
from litlab.data.times import read_times
from litlab.errors import UserError


@dataclass(frozen=True)
class Table:
    """A table that is read and split, nothing scaled yet.

    Args:
        task: What is to be done with the targets.
        lines: Line of the file on which each row begins, int64 of shape (row,).
        numbers: Input columns of numbers by name, float64 of shape (row,), NaN where one is missing.
        categories: Input columns of categories by name, str of shape (row,), empty where one is missing.
        target: Classes, str of shape (row,), or numbers, float64 of shape (row, target).
        part: Split of each row, str of shape (row,).
        dropped: Number of bad rows that were left out.
    """

    task: Task
    lines: np.ndarray
    numbers: dict[str, np.ndarray]
    categories: dict[str, np.ndarray]
    target: np.ndarray
    part: np.ndarray
    dropped: int = 0

    def places(self, split: str) -> np.ndarray:
        """Return the places of the rows of a split."""
        return np.flatnonzero(self.part == split)

    @property
    def class_names(self) -> list[str]:
        """The classes of the training rows; none in regression."""
        return in_order(set(self.target[self.places("train")])) if self.task == "classification" else []

    def take(self, kept: np.ndarray) -> "Table":
        """Return some of the rows, by a mask or their places."""
        numbers = {name: column[kept] for name, column in self.numbers.items()}
        categories = {name: column[kept] for name, column in self.categories.items()}
        lines, target, part = self.lines[kept], self.target[kept], self.part[kept]
        return replace(self, lines=lines, numbers=numbers, categories=categories, target=target, part=part)

    def without(self, bad: BadRows) -> "Table":
        """Return the rows that are not bad; a UserError where all are."""
        good = np.array([line not in bad for line in self.lines])
        if not good.any():
            settle((bad, 0))
        return self if good.all() else self.take(good)

    def digest(self) -> str:
        """Return what changes whenever a cell or a split does."""
        found = hashlib.sha256(repr((self.task, list(self.numbers), list(self.categories))).encode())
        for column in (*self.numbers.values(), *self.categories.values(), self.target, self.part):
            found.update(column.tobytes() if column.dtype != object else "\0".join(column).encode())
        return found.hexdigest()[:12]


@dataclass(frozen=True)
class Source:
    """A table by the names of its settings, see `TabularData`.

    Raises:
        UserError: A column is named for two purposes, or two splits are asked for.
    """

    path: Path
    target: list[str]
    task: Task | None
    categories: list[str] | None
    ignore: list[str]
    split_column: str | None
    group_column: str | None
    time_column: str | None
    val_fraction: float
    test_fraction: float
    bad_rows: Policy = "error"

    def __post_init__(self) -> None:
        splits = [name for name in ("split_column", "group_column", "time_column") if getattr(self, name) is not None]
        if len(splits) > 1:
            raise UserError(f"data.{splits[1]}: there is data.{splits[0]} already; set one of them")
        purposes = {"target": self.target, "categories": self.categories or [], "ignore": self.ignore}
        purposes |= {name: [getattr(self, name)] for name in splits}
        named: dict[str, str] = {}
        for setting, columns in purposes.items():
            for column in columns:
                if column in named:
                    raise UserError(f"data.{setting}: {column!r} is in data.{named[column]} already; delete one")
                named[column] = setting

    def read(self, generated: bool) -> Table:
        """Read, check and split the table, or make one up.

        Raises:
            UserError: The file or a column is missing or wrong, or there are bad rows which may not be left out.
        """
        cells = generated_cells(self.target) if generated else read_cells(self.path, "data.path", self.bad_rows)
        for setting in ("categories", "ignore"):
            for name in getattr(self, setting) or []:
                cells.column(name, f"write {{}} in data.{setting}")
        task, target = read_targets(cells, self.target, self.task)
        units, apart = self._units(cells), {*self.target, *self.ignore, self._unit_column}
        names = [name for name in cells.columns if name not in apart]
        if not names:
            raise UserError(f"{cells.path}: no column is left to predict {', '.join(self.target)} from; add one")
        numbers, categories = input_columns(cells, names, self.categories)
        table = Table(task, np.array(cells.lines), numbers, categories, target, units).without(cells.bad)
        table = replace(table, part=self._parts(table, cells.path))
        if task == "classification":
            for note in label_notes(Counter(table.target)):
                rank_zero_info(f"data.target: {note}")
            known = set(table.class_names)
            for line, label, part in zip(table.lines.tolist(), table.target, table.part, strict=True):
                if label not in known:
                    cells.bad.add(line, f"class {shortened(label)} is in {part}, but not in train")
            table = table.without(cells.bad)
        settle_and_tell(cells.bad, len(table.lines))
        return replace(table, dropped=len(cells.bad))

    @property
    def _unit_column(self) -> str | None:
        return self.split_column or self.group_column or self.time_column

    def _units(self, cells: Cells) -> np.ndarray:
        """Return what tells the split of each row: its split, group or time; (row,)."""
        name = self._unit_column
        if name is None:
            return np.full(len(cells.lines), "train", dtype=object)
        setting = next(key for key in ("split_column", "group_column", "time_column") if getattr(self, key))
        texts = cells.column(name, f"set --data.{setting} {{}}")
        cells.note_empty(name)
        if self.split_column:
            for line, text in zip(cells.lines, texts, strict=True):
                if text not in SPLITS:
                    cells.bad.add(line, f"{name} is {shortened(text)}, not train, val or test")
        if self.time_column:
            values, wrong = read_numbers(texts.tolist())
            return values if not wrong else read_times(name, cells.lines, texts.tolist(), cells.bad)[0]
        return texts

    def _parts(self, table: Table, path: TextFile) -> np.ndarray:
        """Return the split of each row of a table whose `part` holds what tells it."""
        shares = self.val_fraction, self.test_fraction
        if self.group_column is not None:
            return by_unit(table.part.astype(str), "group_column", self.group_column, *shares)
        if self.time_column is not None:
            return by_unit(table.part, "time_column", self.time_column, *shares)
        if not (table.part == "train").any():
            raise UserError(f"{path}: no row has {self.split_column} train; mark the training rows")
        classes = table.target.tolist() if table.task == "classification" else None
        return by_row(classes, table.part, self.val_fraction, 0.0 if self.split_column else self.test_fraction)
