"""Predicting: the texts to read, and the CSV file that tells their classes."""

from pathlib import Path

import torch
from torch import Tensor

from litlab.data.bad_rows import Policy, settle_and_tell
from litlab.data.paths import user_path
from litlab.data.text.reading import Rows, read_lines, read_rows
from litlab.errors import UserError

_SHOWN = 80  # characters of a text in the file of predictions


def read_input(
    source: str, columns: list[str] | None, text_columns: list[str], label_column: str, bad_rows: Policy = "error"
) -> Rows:
    """Read the texts to predict: a CSV file, or a .txt file with one text per line; both may be gzipped.

    Args:
        source: The file.
        columns: Names of the CSV file's columns where it has no row of names; the label column may be missing.
        text_columns: Columns that make up the text.
        label_column: Column of the labels, which are not read.
        bad_rows: Whether rows without a text are an error or left out.

    Raises:
        UserError: The file can't be read, or there are bad rows which may not be left out.
    """
    path = user_path(source, "--input")
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if kind not in (".csv", ".txt"):
        raise UserError(
            f"--input {source}: neither .csv nor .txt; give a CSV file, or a .txt file with one text per line"
        )
    if kind == ".txt":
        rows = read_lines(path, "--input", bad_rows)
    else:
        options = {"labelled": False, "setting": "--input", "bad_rows": bad_rows}
        rows = read_rows(path, columns, text_columns, label_column, **options)
    settle_and_tell(rows.bad, len(rows.texts))
    return rows


def shorten(text: str) -> str:
    """Return the start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


def in_input_order(outputs: list[Tensor], order: Tensor) -> Tensor:
    """Join the outputs of batches, (batch, class), sorted by length, in the order of the input: (texts, class).

    Args:
        outputs: Outputs of the batches.
        order: Number of the text that each output belongs to, int64 of shape (texts,).
    """
    joined = torch.cat([output.cpu() for output in outputs])
    result = torch.empty_like(joined)
    result[order] = joined
    return result
