"""The user's text and CSV files: one that is not readable text is refused in one line before anything is read from it.

Messages name the line on which a row begins, as editors count them. Predictions name the row as spreadsheets count
them, where a quoted text of several lines is one. Both begin with 1, and count the column names.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from litlab.data.bad_rows import BadRows
from litlab.data.labels import shortened
from litlab.data.paths import check_file
from litlab.errors import UserError

_GZIP = b"\x1f\x8b"
_AS_UTF8 = "save it as UTF-8 (in spreadsheets: CSV UTF-8)"
_OTHER_KINDS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF", b"\x89PNG", _GZIP)  # zip and xlsx, xls, ...
_ODD = re.compile("[\0\udc80-\udcff]")  # surrogates stand for bytes that are not UTF-8
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Sent:
    """What somebody has sent instead of naming a file.

    Args:
        name: What messages call it.
        content: Its bytes. They must not be compressed: a few can unpack to more than the memory holds.
    """

    name: str
    content: bytes

    def __str__(self) -> str:
        """Return the name."""
        return self.name


TextFile = Path | Sent


def read_text_file(path: TextFile, setting: str) -> str:
    """Read a UTF-8 file whole; one that is gzipped is unpacked.

    Args:
        path: The file, or what was sent.
        setting: Where its name comes from, such as ``data.path``.

    Returns:
        Its contents, without a byte-order mark. A byte that is not UTF-8 is a surrogate character, see `odd_bytes`.

    Raises:
        UserError: It is not there, damaged, or no text.
    """
    data = path.content if isinstance(path, Sent) else _unpacked(path, setting)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: this is UTF-16, not UTF-8; {_AS_UTF8}")
    start = data[:4096]
    if data.startswith(_OTHER_KINDS) or start.count(b"\0") * 20 > len(start):
        raise UserError(f"{path}: this is not a text file, perhaps a spreadsheet or an archive; save it as CSV UTF-8")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _unpacked(path: Path, setting: str) -> bytes:
    check_file(path, setting)
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP):
            return gzip.decompress(data)
        if path.suffix.lower() == ".gz":
            raise UserError(f"{path}: named .gz, but this is not a gzip file; rename it, or compress it again")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: the gzip file is damaged ({error}); fetch or compress it again") from error
    except OSError as error:
        raise UserError(f"{setting}: {path} can't be read ({error.strerror})") from error
    return data


def odd_bytes(text: str) -> str:
    """Return what is wrong with a text that holds bytes which are not UTF-8, or zeros; empty where nothing is."""
    found = _ODD.search(text)
    if not found:
        return ""
    return "a zero byte: the file is damaged" if found[0] == "\0" else f"not UTF-8, byte {ord(found[0]) - 0xDC00:#04x}"


class Record(NamedTuple):
    """A row of a CSV file.

    Args:
        line: The line of the file on which it begins.
        row: Its number, a quoted text of several lines counted as one.
        fields: What is in it.
    """

    line: int
    row: int
    fields: list[str]


EMPTY = Record(1, 1, [])  # what the first row of an empty file is


def read_records(path: TextFile, setting: str, bad: BadRows) -> Iterator[Record]:
    """Read a CSV file row by row; blank ones are left out.

    Args:
        path: The file, which may be gzipped, or what was sent.
        setting: Where its name comes from, such as ``data.path``.
        bad: Gets the rows that can't be split, or into more or fewer fields than the first one.

    Yields:
        The rows; the first one sets how many fields the others must have.

    Raises:
        UserError: The file can't be read, the first row is bad, or a double quote is never closed.
    """
    content = read_text_file(path, setting)
    reader = csv.reader(io.StringIO(content, newline=""), strict=True)
    odd = bool(odd_bytes(content))
    row, width = 0, 0
    limit = csv.field_size_limit(2**31 - 1)  # an opened quote would end there with a message that nobody understands
    try:
        while True:
            line, row = reader.line_num + 1, row + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                remedy = "quotes inside a quoted text are written twice"
                if "unexpected end" in str(error):  # nobody knows where the row ends
                    raise UserError(
                        f"{path}, line {line}: broken quoting (a double quote is opened and never closed); {remedy}"
                    ) from error
                fields, problem = [], f"broken quoting, {error}: {remedy}"
            else:
                problem = odd_bytes("".join(fields)) if odd else ""
                problem = f"{problem}: {_AS_UTF8}" if "UTF-8" in problem else problem
            if not problem and fields and width and len(fields) != width:
                problem = _wrong_width(fields, width, reader.line_num - line + 1)
            if problem and not width:
                raise UserError(f"{path}, line {line}: {problem}")
            if problem:
                bad.add(line, problem)
            elif fields:
                width = len(fields)
                yield Record(line, row, fields)
    finally:
        csv.field_size_limit(limit)


def _wrong_width(fields: list[str], width: int, lines: int) -> str:
    """Return what is wrong with a row of too many or too few fields, and the remedy where quotes can be one."""
    count = f"{len(fields)} field{'s' * (len(fields) != 1)}"
    if lines > 1:
        return f"{count} on {lines:,} lines instead of {width}: one of its double quotes is missing or too many"
    remedy = ""
    if any(map(_LETTER.search, fields)):  # numbers need no quotes
        if len(fields) < width:
            remedy = ": put texts with line breaks into double quotes"
        elif "".join(fields[width:]).strip():  # not just commas at its end
            remedy = ": put texts with commas into double quotes"
    return f"{count} instead of {width}{remedy}"


def column_place(path: TextFile, names: Sequence[str], column: str, fix: str, otherwise: str = "") -> int:
    """Find the place of a column in a CSV file.

    Args:
        path: The file.
        names: Its columns.
        column: The one to find.
        fix: What to do where it is not there, with {} for the name of the column that is meant.
        otherwise: What else to do where no column has such a name.

    Raises:
        UserError: It is not there, or more than once.
    """
    if names.count(column) == 1:
        return names.index(column)
    if column in names:
        raise UserError(f"{path}: there are {names.count(column)} columns {column!r}; rename all but one")
    shown = ", ".join(map(shortened, names[:8])) + (", ..." if len(names) > 8 else "")
    by_lower = {name.lower(): name for name in names if name.isprintable()}
    near = [by_lower[name] for name in get_close_matches(column.lower(), by_lower, n=1, cutoff=0.7)]
    if len(names) == 1 and set(names[0]) & set(";\t|"):
        remedy = "separate the values by commas, and decimals by points"
    else:
        remedy = fix.format(near[0]) if near else fix.format("NAME") + otherwise
    raise UserError(f"{path}: there is no column {column!r}, only {shown or 'an empty file'}; {remedy}")
