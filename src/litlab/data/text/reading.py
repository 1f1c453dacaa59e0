"""Texts from files; what is wrong with one is said with the file, the lines and the remedy."""

import io
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from litlab.data.bad_rows import BadRows, Policy, settle
from litlab.data.text_file import column_place, odd_bytes, read_records, read_text_file
from litlab.errors import UserError


@dataclass(frozen=True)
class Rows:
    """The columns of a CSV file that are of interest.

    Args:
        lines: Line of the file on which each row begins, for messages.
        numbers: Number of each row in the file.
        texts: The text columns of each row, joined by a space.
        labels: The label of each row; empty where no label column was asked for.
        bad: The rows that are left out above; `settle` says whether they may be.
        written: How often each label occurs, as it is written in the file.
    """

    lines: list[int]
    numbers: list[int]
    texts: list[str]
    labels: list[str]
    bad: BadRows
    written: Counter[str] = field(default_factory=Counter)

    def leave_out(self, problems: dict[int, str]) -> None:
        """Take out rows that turned out to be bad; what is wrong, by the line of the row."""
        if not problems:
            return
        for line, problem in problems.items():
            self.bad.add(line, problem)
        kept = [place for place, line in enumerate(self.lines) if line not in problems]
        self.lines[:] = [self.lines[place] for place in kept]
        self.numbers[:] = [self.numbers[place] for place in kept]
        self.texts[:] = [self.texts[place] for place in kept]
        self.labels[:] = [self.labels[place] for place in kept]


def read_rows(
    path: Path,
    columns: list[str] | None,
    text_columns: list[str],
    label_column: str,
    *,
    labelled: bool = True,
    setting: str = "data.path",
    bad_rows: Policy = "error",
) -> Rows:
    """Read texts, and their labels where wanted, from a CSV file.

    Args:
        path: The file, UTF-8, comma-separated; may be gzipped.
        columns: Names of its columns where it has no row of names; None: its first row has them.
        text_columns: Columns that make up the text.
        label_column: Column of the labels.
        labelled: Whether the labels are wanted; if not, they may be missing, and so may their column.
        setting: Where the file's name comes from, for messages.
        bad_rows: Whether rows with too many or few fields, an empty text or label are an error.

    Raises:
        UserError: The file can't be read, or a column is missing. Bad rows are only noted, see `bad_rows.settle`.
    """
    rows = Rows([], [], [], [], BadRows(path, bad_rows))
    records = read_records(path, setting, rows.bad)
    first = next(records, None)
    if first is None:
        raise UserError(f"{path}: the file is empty; it needs a row per text")
    names = _column_names(path, first.fields, columns, text_columns, label_column, labelled)
    named = names is first.fields
    names = [name.strip() for name in names]
    places = [_place(path, names, column, "text_columns", columns) for column in text_columns]
    label_place = _place(path, names, label_column, "label_column", columns) if labelled else None
    for line, number, fields in records if named else chain([first], records):
        text = " ".join(fields[place] for place in places).strip()
        label = "" if label_place is None else fields[label_place]
        if not text:
            rows.bad.add(line, "the text is empty")
        elif label_place is not None and not label.strip():
            rows.bad.add(line, f"{label_column} is empty")
        else:
            rows.lines.append(line)
            rows.numbers.append(number)
            rows.texts.append(text)
            if label_place is not None:
                rows.labels.append(label.strip())
                rows.written[label] += 1
    if not rows.texts and not rows.bad:
        raise UserError(f"{path}: no rows below the column names; add one per text")
    return rows


def read_texts(
    path: Path, columns: list[str], text_columns: list[str], label_column: str
) -> tuple[list[str], list[str]]:
    """Read a CSV file of a public data set, without a row of names, in which every row is good.

    Returns:
        The texts, their columns joined by a space, and their labels.

    Raises:
        UserError: The file can't be read, a column is missing, or a row is bad.
    """
    rows = read_rows(path, columns, text_columns, label_column)
    settle((rows.bad, len(rows.texts)))
    return rows.texts, rows.labels


def read_lines(path: Path, setting: str, bad_rows: Policy) -> Rows:
    """Read a text file of one text per line; may be gzipped. Bad lines are only noted, see `bad_rows.settle`.

    Raises:
        UserError: The file can't be read, or is empty.
    """
    rows = Rows([], [], [], [], BadRows(path, bad_rows))
    for number, line in enumerate(io.StringIO(read_text_file(path, setting), newline=None), 1):
        text = line.strip()
        problem = odd_bytes(text) if text else "the text is empty"
        if problem:
            rows.bad.add(number, problem)
        else:
            rows.lines.append(number)
            rows.numbers.append(number)
            rows.texts.append(text)
    if not rows.texts and not rows.bad:
        raise UserError(f"{path}: the file is empty; it needs a text per line")
    return rows


def _column_names(
    path: Path, first: list[str], columns: list[str] | None, text_columns: list[str], label_column: str, labelled: bool
) -> list[str]:
    """Return the column names of a file; `first`, its first row, where that row has them."""
    if columns is None or (not labelled and set(text_columns) <= set(first)):
        return first
    unlabelled = [column for column in columns if column != label_column]
    if not labelled and len(first) == len(unlabelled):
        return unlabelled
    if len(first) != len(columns):
        raise UserError(f"{path}, line 1: {len(first)} fields, but data.columns names {len(columns)}; make them agree")
    return columns


def _place(path: Path, names: list[str], column: str, setting: str, columns: list[str] | None) -> int:
    if columns is None:
        fix = f"set --data.{setting} " + ("'[{}]'" if setting == "text_columns" else "{}")
        return column_place(path, names, column, fix, ", or name all columns with --data.columns if line 1 is a text")
    if columns.count(column) > 1:
        raise UserError(f"data.columns: there are {columns.count(column)} columns {column!r}; rename all but one")
    if column not in columns:
        raise UserError(f"data.{setting}: {column!r} is not in data.columns ({', '.join(columns)}); name one of these")
    return names.index(column)
