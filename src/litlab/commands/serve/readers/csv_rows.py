"""Rows as JSON, brought to the bytes of a CSV file that `read_frame` reads as for ``predict``: one way of checking."""

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

from litlab.commands.serve.body import Given, check_characters
from litlab.commands.serve.refusal import Refusal

_ENDS = re.compile(rb"\r\n?|\n")  # of lines, as the module csv sees them


def sent_rows(given: Given, name: str, columns: Sequence[str], most: int) -> bytes:
    """Return the rows of a request as the bytes of a CSV file: the form's file, CSV as a text, or a list of objects.

    Args:
        given: The request.
        name: Its field, and what messages call it.
        columns: The columns that the model needs. Others are left out.
        most: How many rows it may have.

    Raises:
        Refusal: There are none or too many, or a row is no object, lacks a column, or has a value of another kind.
    """
    value = given.values.get(name)
    if value is None and given.file is not None:
        return _check_lines("file", given.file, most)
    if value is None:
        raise Refusal(422, f"there is no {name}; send it as '{name}', or as the file 'file' of a form")
    if isinstance(value, str):
        check_characters(name, value)
        return _check_lines(name, value.encode(), most)
    if not isinstance(value, list) or not value:
        raise Refusal(422, f"{name}: it must be a list of objects, one for each row, or the text of a CSV file")
    if len(value) > most:
        raise Refusal(413, f"{name}: it has {len(value):,} rows; send at most {most:,}")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for number, row in enumerate(value):
        if not isinstance(row, dict):
            raise Refusal(422, f"{name}[{number}]: it must be an object, such as {{...}}")
        writer.writerow([_cell(f"{name}[{number}]", row, column) for column in columns])
    return text.getvalue().encode()


def _check_lines(name: str, content: bytes, most: int) -> bytes:
    lines = len(_ENDS.findall(content))
    if lines > most + 1:
        raise Refusal(413, f"{name}: it has {lines:,} lines; send at most {most:,} rows")
    return content


def _cell(place: str, row: dict[str, Any], column: str) -> str:
    if column not in row:
        raise Refusal(422, f"{place}: it has no {column!r}; null stands for a value that is missing")
    value = row[column]
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Refusal(422, f"{place}.{column}: it must be a number, a text or null")
    if isinstance(value, str):
        check_characters(f"{place}.{column}", value)
        return value
    try:
        return str(value)
    except ValueError:  # a whole number of thousands of digits
        raise Refusal(422, f"{place}.{column}: the number is too long") from None
