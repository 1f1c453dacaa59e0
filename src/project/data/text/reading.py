"""Texts from files, with an error for everything that can be wrong with one: it names the file, the row, the remedy.

Rows are counted as a spreadsheet counts them: from 1, the row of column names included, a quoted text of several lines
as one.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from project.errors import UserError

_GZIP = b"\x1f\x8b"
_AS_UTF8 = "save it as UTF-8 (in spreadsheets: CSV UTF-8)"


@dataclass(frozen=True)
class Rows:
    """The columns of a CSV file that are of interest.

    Args:
        numbers: Row number of each entry, for messages.
        texts: The text columns of each row, joined by a space.
        labels: The label of each row; empty where no label column was asked for.
    """

    numbers: list[int]
    texts: list[str]
    labels: list[str]


def no_file(path: Path, setting: str) -> str:
    """What is wrong with a path that is no file.

    Args:
        path: The path.
        setting: Where it comes from, such as ``data.path``.
    """
    return f"{setting}: {path} is a folder; give a file" if path.is_dir() else f"{setting}: there is no file {path}"


def read_text_file(path: Path, setting: str) -> str:
    """Read a UTF-8 file whole; one that is gzipped is unpacked.

    Args:
        path: The file.
        setting: Where its name comes from, such as ``data.path``.

    Returns:
        Its contents, without a byte-order mark.

    Raises:
        UserError: It is not there, damaged, or not UTF-8.
    """
    if not path.is_file():
        raise UserError(no_file(path, setting))
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        elif path.suffix == ".gz":
            raise UserError(f"{path}: the name ends in .gz, but this is no gzip file; rename it, or compress it again")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: the gzip file is damaged ({error}); fetch or compress it again") from error
    except OSError as error:
        raise UserError(f"{path}: unreadable ({error.strerror})") from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: this is UTF-16, not UTF-8; {_AS_UTF8}")
    if b"\0" in data[:4096]:
        raise UserError(f"{path}: this is no text file, perhaps a spreadsheet or an archive; save it as CSV UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not UTF-8 (byte {data[error.start]:#04x} at position {error.start}); {_AS_UTF8}"
        ) from error


def read_rows(
    path: Path,
    columns: list[str] | None,
    text_columns: list[str],
    label_column: str,
    *,
    labelled: bool = True,
    setting: str = "data.path",
) -> Rows:
    """Read texts, and their labels where wanted, from a CSV file.

    Args:
        path: The file, UTF-8, comma-separated; may be gzipped.
        columns: Names of its columns where it has no row of names; None: its first row has them.
        text_columns: Columns that make up the text.
        label_column: Column of the labels.
        labelled: Whether the labels are wanted; if not, they may be missing, and so may their column.
        setting: Where the file's name comes from, for messages.

    Raises:
        UserError: The file can't be read, a column is missing, or a row has too many or few fields or an empty text or
            label.
    """
    records = _records(path, read_text_file(path, setting))
    first = next(records, None)
    if first is None:
        raise UserError(f"{path}: the file is empty; it needs a row per text")
    names = _column_names(path, first[1], columns, text_columns, label_column, labelled)
    named = names is first[1]
    names = [name.strip() for name in names]
    places = [_place(path, names, column, "text_columns", columns) for column in text_columns]
    label_place = _place(path, names, label_column, "label_column", columns) if labelled else None
    rows = Rows([], [], [])
    for number, fields in records if named else chain([first], records):
        if len(fields) != len(names):
            raise UserError(
                f"{path}, row {number}: {len(fields)} fields instead of {len(names)}; "
                f"put texts with commas or line breaks into double quotes"
            )
        text = " ".join(fields[place] for place in places).strip()
        if not text:
            raise UserError(f"{path}, row {number}: the text is empty; fill it in or delete the row")
        rows.numbers.append(number)
        rows.texts.append(text)
        if label_place is not None:
            label = fields[label_place].strip()
            if not label:
                raise UserError(f"{path}, row {number}: {label_column} is empty; fill it in or delete the row")
            rows.labels.append(label)
    if not rows.texts:
        raise UserError(f"{path}: no rows below the column names; add one per text")
    return rows


def read_lines(path: Path, setting: str) -> Rows:
    """Read a plain text file of one text per line; may be gzipped.

    Args:
        path: The file.
        setting: Where its name comes from, for messages.

    Raises:
        UserError: The file can't be read, or a line is empty.
    """
    texts = [line.strip() for line in io.StringIO(read_text_file(path, setting), newline=None)]
    if not texts:
        raise UserError(f"{path}: the file is empty; it needs a text per line")
    if "" in texts:
        raise UserError(f"{path}, row {texts.index('') + 1}: the text is empty; fill it in or delete the line")
    return Rows(list(range(1, len(texts) + 1)), texts, [])


def _records(path: Path, content: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (row number, fields) of the rows that are not blank."""
    number = 0
    limit = csv.field_size_limit(2**31 - 1)  # an opened quote would end there with a message that nobody understands
    try:
        for fields in csv.reader(io.StringIO(content, newline=""), strict=True):
            number += 1
            if fields:
                yield number, fields
    except csv.Error as error:
        what = "a double quote is opened and never closed" if "unexpected end" in str(error) else str(error)
        raise UserError(
            f"{path}, row {number + 1}: broken quoting ({what}); quotes inside a quoted text are written twice"
        ) from error
    finally:
        csv.field_size_limit(limit)


def _column_names(
    path: Path, first: list[str], columns: list[str] | None, text_columns: list[str], label_column: str, labelled: bool
) -> list[str]:
    """The column names of a file; `first`, its first row, where that row has them."""
    if columns is None or (not labelled and set(text_columns) <= set(first)):
        return first
    unlabelled = [column for column in columns if column != label_column]
    if not labelled and len(first) == len(unlabelled):
        return unlabelled
    if len(first) != len(columns):
        raise UserError(f"{path}, row 1: {len(first)} fields, but data.columns names {len(columns)}; make them agree")
    return columns


def _place(path: Path, names: list[str], column: str, setting: str, columns: list[str] | None) -> int:
    if names.count(column) > 1:
        where = path if columns is None else "data.columns"
        raise UserError(f"{where}: there are {names.count(column)} columns {column!r}; rename all but one")
    if column in names:
        return names.index(column)
    if columns is not None:
        raise UserError(f"data.{setting}: {column!r} is none of data.columns ({', '.join(columns)})")
    shown = ", ".join(repr(name if len(name) <= 40 else name[:37] + "...") for name in names[:8])
    near = get_close_matches(column, names, n=1, cutoff=0.7)
    if near:
        value = f"'[{near[0]}]'" if setting == "text_columns" else near[0]
        hint = f"did you mean --data.{setting} {value}?"
    elif len(names) == 1 and set(names[0]) & set(";\t|"):
        hint = "columns must be separated by commas"
    else:
        example = "'[NAME]'" if setting == "text_columns" else "NAME"
        hint = (
            f"name the right one with --data.{setting} {example}, or all of them with --data.columns if row 1 is a text"
        )
    raise UserError(f"{path}: there is no column {column!r}, only {shown}{', ...' if len(names) > 8 else ''}; {hint}")
