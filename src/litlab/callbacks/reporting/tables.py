"""Publish a table: as a CSV file in the run folder, and as a table or a text in the loggers."""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from lightning.pytorch import Trainer

from litlab.callbacks.reporting.loggers import log_table

SHOWN = 300  # characters of a text in Markdown; the file has it whole


def publish_table(
    trainer: Trainer,
    folder: Path | None,
    name: str,
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    file: str | None = None,
    text: str | None = None,
) -> None:
    """Save a table of a test as a CSV file and log it as ``test/NAME``. Call it on rank zero.

    Args:
        trainer: The trainer that tests.
        folder: The run folder; ``None`` for a run without one.
        name: Name of the table.
        header: Names of the columns.
        rows: Their values.
        file: Name of the file; ``NAME.csv`` by default.
        text: The table in Markdown, where it is not simply one table.
    """
    if folder is not None:
        write_rows(folder / (file or f"{name}.csv"), header, rows)
    log_table(trainer, f"test/{name}", header, rows, text or markdown_table(header, rows))


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file.

    Args:
        path: The file; an existing one is replaced.
        header: Names of the columns.
        rows: Their values. Floats get six significant digits; NaN is an empty field.
    """
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows([_field(value) for value in row] for row in rows)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown: long texts cut, nothing in them taken for markup.

    Args:
        header: Names of the columns.
        rows: Their values, numbers as in `write_rows`.
    """
    cells = [[_cell(_field(value)) for value in row] for row in rows]
    lines = [[_cell(name) for name in header], ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    text = " ".join(str(value).split())
    text = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text)


def _field(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"
