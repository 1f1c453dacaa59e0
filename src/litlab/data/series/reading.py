"""A CSV file as times and numbers; what can't be read is named by line and column."""

from dataclasses import dataclass, replace

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.bad_rows import BadRows, Policy, settle
from litlab.data.labels import shortened
from litlab.data.numbers import are_formatted, no_number, read_numbers
from litlab.data.text_file import EMPTY, TextFile, column_place, read_records
from litlab.data.times import read_times
from litlab.errors import UserError

_TARGETS = "set --data.targets '[{}]'"
_TRAINED = "the checkpoint needs it"


@dataclass(frozen=True)
class Table:
    """The columns asked for, as they are in the file.

    Args:
        path: The file.
        lines: Line of the file on which each row begins, for messages.
        times: datetime64[s] of shape (row,).
        utc: Whether the times had UTC offsets; they are UTC then.
        names: Names of the columns.
        values: float64 of shape (row, column), NaN where a value is missing.
        bad: The rows that are left out; `settle` says whether they may be.
    """

    path: TextFile
    lines: list[int]
    times: np.ndarray
    utc: bool
    names: list[str]
    values: np.ndarray
    bad: BadRows

    def good(self) -> "Table":
        """Return the same without the rows that were found to be bad meanwhile."""
        kept = [place for place, line in enumerate(self.lines) if line not in self.bad]
        lines = [self.lines[place] for place in kept]
        return replace(self, lines=lines, times=self.times[kept], values=self.values[kept])


def read_table(
    path: TextFile,
    time_column: str,
    columns: list[str] | None,
    *,
    trained: bool = False,
    setting: str = "data.path",
    bad_rows: Policy = "error",
) -> Table:
    """Read a CSV file: UTF-8, separated by commas, with a header; may be gzipped.

    Args:
        path: The file.
        time_column: Column of the times, in any form of `datetime.fromisoformat`.
        columns: The columns to read; None: all that have a name and mostly numbers.
        trained: Whether a checkpoint needs these columns, rather than the settings.
        setting: Where the file's name comes from, for messages.
        bad_rows: Whether rows that can't be read, or without a time or number, are errors or left out.

    Raises:
        UserError: The file is missing or unreadable, or a column is missing or holds no numbers. Bad rows are only
            noted, see `bad_rows.settle`.
    """
    bad = BadRows(path, bad_rows)
    records = read_records(path, setting, bad)
    header = [name.strip() for name in next(records, EMPTY).fields]
    if not header:
        raise UserError(f"{path}: the file is empty; give a header and one row per time")
    column_place(path, header, time_column, _TRAINED if trained else "set --data.time_column {}")
    for column in columns or []:
        column_place(path, header, column, _TRAINED if trained else _TARGETS)
    rows = list(records)
    if not rows:
        settle((bad, 0))
        raise UserError(f"{path}: no rows below a header; give one row per time")
    lines, cells = [row.line for row in rows], list(zip(*(row.fields for row in rows), strict=True))
    times, utc = read_times(time_column, lines, cells[header.index(time_column)], bad)
    names, values, left_out = [], [], []
    for column in columns if columns is not None else [name for name in dict.fromkeys(header) if name != time_column]:
        texts = cells[header.index(column)]
        numbers, wrong = read_numbers(texts)
        words = len(wrong) > np.isfinite(numbers).sum()
        formatted = words and are_formatted([texts[place] for place in wrong])
        if columns is None and not formatted and (not column or np.isfinite(numbers).sum() <= len(wrong)):
            # words, or empty, or the unnamed row numbers that some programs write
            if wrong and column:
                left_out.append(f"{column} ({shortened(texts[wrong[0]])} in line {lines[wrong[0]]})")
            continue
        column_place(path, header, column, _TARGETS)  # it must not be there twice
        if words:
            others = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
            remedy = "name other columns in data.targets" if columns is None else "leave it out of data.targets"
            raise UserError(
                f"{path}, line {lines[wrong[0]]}{others}: {no_number(column, texts[wrong[0]])}; correct the column, or "
                f"{remedy}"
            )
        for place in wrong:
            bad.add(lines[place], no_number(column, texts[place]))
        names.append(column)
        values.append(numbers)
    if not names:
        raise UserError(f"{path}: there is no column of numbers besides {time_column!r}; add one")
    if left_out:
        rank_zero_info(f"{path}: not among the targets, as they hold no numbers: {', '.join(left_out)}")
    return Table(path, lines, times, utc, names, np.stack(values, axis=1), bad).good()
