"""A CSV file as times and numbers; what can't be read is named by row and column."""

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from project.errors import UserError

_MISSING = ("", "nan", "na", "n/a", "null", "none")


@dataclass(frozen=True)
class Table:
    """The columns asked for, as they are in the file.

    Args:
        path: The file.
        rows: Number of each row in the file (its line), for error messages.
        times: datetime64[s] of shape (row,).
        utc: Whether the times had UTC offsets; they are UTC then.
        names: Names of the columns.
        values: float64 of shape (row, column), NaN where a value is missing.
    """

    path: Path
    rows: list[int]
    times: np.ndarray
    utc: bool
    names: list[str]
    values: np.ndarray


def read_table(path: Path, time_column: str, columns: list[str] | None, *, trained: bool = False) -> Table:
    """Read a CSV file: UTF-8, separated by commas, with a header; gzipped where its name ends in .gz.

    Args:
        path: The file.
        time_column: Column of the times, in any form of `datetime.fromisoformat`, such as 2024-01-31 or
            2024-01-31 13:00:00 or 2024-01-31T13:00+01:00.
        columns: The columns to read; None: all that have a name and mostly numbers.
        trained: Whether a checkpoint needs these columns, rather than the settings.

    Raises:
        UserError: The file is missing or unreadable, a column is missing, a time or number makes no sense.
    """
    header, rows, cells = _read_cells(path)
    wanted = [time_column, *(columns if columns is not None else [])]
    for column in wanted:
        if header.count(column) != 1:
            option = "time_column" if column == time_column else "targets"
            raise _wrong_column(path, header, column, option, trained)
    times, utc = _read_times(path, time_column, rows, cells[header.index(time_column)])
    names, values, left_out = [], [], []
    for column in columns if columns is not None else [name for name in dict.fromkeys(header) if name != time_column]:
        texts = cells[header.index(column)]
        numbers, wrong = _read_numbers(texts)
        if columns is None and (not column or np.isfinite(numbers).sum() <= len(wrong)):
            # words, or empty, or the unnamed row numbers that some programs write
            if wrong and column:
                left_out.append(f"{column} ({texts[wrong[0]]!r} in row {rows[wrong[0]]})")
            continue
        if header.count(column) != 1:
            raise _wrong_column(path, header, column, "targets", trained)
        if wrong:
            others = f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
            raise UserError(
                f"{path}, row {rows[wrong[0]]}{others}: column {column!r} is {texts[wrong[0]]!r}, which is no number; "
                f"correct or empty it, or leave the column out of data.targets"
            )
        names.append(column)
        values.append(numbers)
    if not names:
        raise UserError(f"{path}: there is no column of numbers beside {time_column!r}; add one")
    if left_out:
        rank_zero_info(f"{path}: not among the targets, as they hold no numbers: {', '.join(left_out)}")
    return Table(path, rows, times, utc, names, np.stack(values, axis=1))


def _read_cells(path: Path) -> tuple[list[str], list[int], list[tuple[str, ...]]]:
    """The header, the line of each row, and the columns."""
    if not path.is_file():
        what = "a folder, not a CSV file" if path.is_dir() else "no such file"
        raise UserError(f"{path}: {what}; give a CSV file with a time column and columns of numbers")
    before = 0  # the last line of the row before
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
        text = content.decode("utf-8-sig")
        rows, cells = [], []
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in next(reader, [])]
        before = reader.line_num
        for row in reader:
            before = reader.line_num
            if not row:
                continue  # an empty line
            if len(row) != len(header):
                raise UserError(
                    f"{path}, row {reader.line_num}: {len(row)} values, the header has {len(header)} columns; "
                    f"correct the row"
                )
            rows.append(reader.line_num)
            cells.append(row)
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise UserError(f"{path}, row {line}: not UTF-8 (byte {byte:#04x}); save it as CSV UTF-8") from error
    except csv.Error as error:
        raise UserError(
            f"{path}, row {before + 1}: broken quoting ({error}); quotes inside a quoted text are written twice"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: unreadable as CSV ({error}); save it again as CSV UTF-8") from error
    if not cells:
        raise UserError(f"{path}: no rows below a header; give one row per time")
    return header, rows, list(zip(*cells, strict=True))


def _wrong_column(path: Path, header: list[str], column: str, option: str, trained: bool) -> UserError:
    remedy = "the checkpoint needs it" if trained else f"name the right one in data.{option}"
    if column in header:
        return UserError(f"{path}: there are {header.count(column)} columns {column!r}; rename all but one")
    if len(header) == 1 and set(header[0]) & set(";\t|"):
        return UserError(f"{path}: there is no column {column!r}, only {header[0]!r}; separate the values by commas")
    return UserError(f"{path}: there is no column {column!r}{nearest_name(column, header)}; {remedy}")


def nearest_name(name: str, names: Sequence[str]) -> str:
    """What an error message adds to a name that is not there: the nearest one, or all.

    Args:
        name: The name.
        names: Those that are there.
    """
    by_lower = {other.lower(): other for other in names}
    nearest = [by_lower[other] for other in get_close_matches(name.lower(), by_lower, n=1)]
    some = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return f" (did you mean {nearest[0]!r}?)" if nearest else f", only {some}"


def parse_time(text: str) -> tuple[datetime, bool]:
    """Read a time in any form of ISO 8601 that `datetime.fromisoformat` knows.

    Args:
        text: Such as 2024-01-31, 2024-01-31 13:00:00 or 2024-01-31T13:00+01:00.

    Returns:
        The time, in UTC where it had an offset, and whether it had one.

    Raises:
        ValueError: It is no such time, or finer than a second.
    """
    time = datetime.fromisoformat(text.strip())
    if time.microsecond:
        raise ValueError("times finer than a second are not supported")
    return (time, False) if time.tzinfo is None else (time.astimezone(UTC).replace(tzinfo=None), True)


def _read_times(path: Path, column: str, rows: list[int], texts: tuple[str, ...]) -> tuple[np.ndarray, bool]:
    times, utc = [], False
    for row, text in zip(rows, texts, strict=True):
        try:
            time, aware = parse_time(text)
        except (ValueError, OverflowError) as error:
            raise UserError(
                f"{path}, row {row}: column {column!r} is {text!r}, which is no time ({error}); "
                f"write it like 2024-01-31 13:00:00"
            ) from error
        if times and aware != utc:
            has, others = ("a", "no") if aware else ("no", "an")
            raise UserError(
                f"{path}, row {row}: column {column!r} is {text!r}, with {has} UTC offset, the rows before have "
                f"{others} offset; write all times alike"
            )
        times.append(time)
        utc = aware
    return np.array(times, dtype="datetime64[s]"), utc


def _read_numbers(texts: tuple[str, ...]) -> tuple[np.ndarray, list[int]]:
    """The numbers, NaN where there is none, and the places of those that are text."""
    try:
        numbers = np.array(texts, dtype=np.float64)
        if not np.isinf(numbers).any():
            return numbers, []
    except ValueError:
        pass  # one by one, to find out which
    numbers, wrong = np.full(len(texts), np.nan), []
    for place, text in enumerate(texts):
        if text.strip().lower() in _MISSING:
            continue
        try:
            numbers[place] = float(text)
        except ValueError:
            wrong.append(place)
        if np.isinf(numbers[place]):
            wrong.append(place)
    return numbers, wrong
