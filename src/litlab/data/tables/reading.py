"""A CSV file as text, its columns as numbers, categories or targets; what can't be read is named by line and column."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.bad_rows import BadRows, Policy, settle
from litlab.data.labels import shortened
from litlab.data.numbers import are_formatted, no_number, read_numbers
from litlab.data.tables.metadata import Task
from litlab.data.text_file import EMPTY, TextFile, column_place, read_records
from litlab.errors import UserError

_FEW = 20  # different whole numbers in a target that may still be classes ...
_EACH = 5  # ... if each of them comes so often, on average


@dataclass(frozen=True)
class Cells:
    """The text of a table.

    Args:
        path: The file.
        lines: Line of the file on which each row begins, for messages.
        rows: Number of each row in the file.
        columns: The cells of each column by its name, without spaces at their ends; str of shape (row,).
        bad: The rows that can't be used.
    """

    path: TextFile
    lines: list[int]
    rows: list[int]
    columns: dict[str, np.ndarray]
    bad: BadRows

    def column(self, name: str, fix: str) -> np.ndarray:
        """Return the cells of a column; a UserError that names the nearest one, and says how to fix it, without it."""
        column_place(self.path, list(self.columns), name, fix)
        return self.columns[name]

    def note_empty(self, name: str) -> None:
        """Note the rows where a column is empty."""
        for place in np.flatnonzero(self.columns[name] == ""):
            self.bad.add(self.lines[place], f"column {shortened(name)} is empty")


def read_cells(path: TextFile, setting: str, bad_rows: Policy) -> Cells:
    """Read a CSV file: UTF-8, separated by commas, with a header; may be gzipped.

    Columns without a name, in which some programs number the rows, are left out.

    Args:
        path: The file.
        setting: Where its name comes from, for messages.
        bad_rows: Whether bad rows are errors or left out; here they are only noted, see `bad_rows.settle`.

    Raises:
        UserError: The file is missing, unreadable or empty, or two columns have the same name.
    """
    bad = BadRows(path, bad_rows)
    records = read_records(path, setting, bad)
    header = [name.strip() for name in next(records, EMPTY).fields]
    if not any(header):
        raise UserError(f"{path}: the file is empty; give a header and one row per sample")
    for name in filter(None, header):
        column_place(path, header, name, "")  # it must not be there twice
    rows = list(records)
    if not rows:
        settle((bad, 0))
        raise UserError(f"{path}: no rows below a header; give one row per sample")
    texts = zip(*(row.fields for row in rows), strict=True)
    columns = {
        name: np.array([text.strip() for text in column], dtype=object)
        for name, column in zip(header, texts, strict=True)
        if name
    }
    return Cells(path, [row.line for row in rows], [row.row for row in rows], columns, bad)


def number_column(cells: Cells, name: str, remedy: str, needed: bool = True) -> np.ndarray | None:
    """Read a column as numbers; cells that are not are noted as bad where most others are.

    Args:
        cells: The table.
        name: The column.
        remedy: What to do where most cells are not numbers.
        needed: Whether that is an error also for words; for numbers in another notation, such as 12 kW, it always is.

    Returns:
        float64 of shape (row,), NaN where one is missing; None where most cells are words.

    Raises:
        UserError: They are not numbers.
    """
    texts = cells.columns[name]
    values, wrong = read_numbers(texts.tolist())
    if len(wrong) > np.isfinite(values).sum():
        if needed or are_formatted(texts[wrong].tolist()):
            others = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
            line = cells.lines[wrong[0]]
            raise UserError(f"{cells.path}, line {line}{others}: {no_number(name, texts[wrong[0]])}; {remedy}")
        return None
    for place in wrong:
        cells.bad.add(cells.lines[place], no_number(name, texts[place]))
    return values


def input_columns(
    cells: Cells, names: list[str], categories: list[str] | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Read the columns that a model gets.

    Args:
        cells: The table.
        names: The columns.
        categories: Those that hold categories; None: those of words.

    Returns:
        The columns of numbers, float64 of shape (row,), NaN where one is missing; and those of categories, str of shape
        (row,), empty where one is missing.

    Raises:
        UserError: A column holds neither.
    """
    numbers, words = {}, {}
    for name in names:
        remedy = f"correct the column, or add {name!r} to data.categories or data.ignore"
        named = categories is not None and name in categories
        values = None if named else number_column(cells, name, remedy, needed=categories is not None)
        if values is None:
            words[name] = cells.columns[name]
        else:
            numbers[name] = values
    return numbers, words


def read_targets(cells: Cells, targets: list[str], task: Task | None) -> tuple[Task, np.ndarray]:
    """Read what is to be predicted.

    Args:
        cells: The table.
        targets: The columns.
        task: What to do with them; None: a single column of words or few whole numbers is classified.

    Returns:
        The task, and for classification the classes, str of shape (row,), for regression float64 of shape (row,
        target). Rows without a target are noted as bad.

    Raises:
        UserError: There are several targets to classify, or one to regress that holds no numbers.
    """
    columns = {name: cells.column(name, "set --data.target {}") for name in targets}
    for name in targets:
        cells.note_empty(name)
    first, texts = targets[0], columns[targets[0]]
    if task is None:
        task = "regression"
        if len(targets) == 1:
            task, reason = _told_by(cells, first, texts)
            rank_zero_info(f"data.task: {task}, as column {shortened(first)} holds {reason}; set it to change that")
    if task == "classification":
        if len(targets) > 1:
            raise UserError(
                f"data.target: {len(targets)} columns can't be classified; name one, or set data.task regression"
            )
        counts = Counter(filter(None, texts))
        if len(counts) > 2 and max(counts.values()) == 1:
            raise UserError(
                f"{cells.path}: column {shortened(first)} has another value in each of {len(counts):,} rows, so "
                f"it can't be the class; name the right one with --data.target, or set data.task regression"
            )
        return task, texts
    values = []
    for name, texts in columns.items():
        numbers = number_column(cells, name, "correct the column, name another, or set data.task classification")
        assert numbers is not None
        for place in np.flatnonzero(np.isnan(numbers)):
            cells.bad.add(cells.lines[place], f"column {shortened(name)} is {shortened(texts[place])}, not a number")
        values.append(numbers)
    return task, np.stack(values, axis=1)


def _told_by(cells: Cells, name: str, texts: np.ndarray) -> tuple[Task, str]:
    """Return the task that a column asks for, and what it holds."""
    values, wrong = read_numbers(texts.tolist())
    values = values[np.isfinite(values)]
    if len(wrong) > len(values):
        return "classification", "words"
    different = len(np.unique(values))
    if (values == np.round(values)).all() and different <= _FEW and different * _EACH <= len(values):
        return "classification", f"{different} different whole numbers"
    return "regression", "numbers"
