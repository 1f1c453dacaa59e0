"""Predicting: the rows of a new file, and the CSV file with what is predicted for them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.bad_rows import Policy, settle_and_tell
from litlab.data.table import PREDICTED, check_finite, write_classes, write_table
from litlab.data.tables.encoding import encode
from litlab.data.tables.memory import EncodedRows
from litlab.data.tables.metadata import TabularMetadata
from litlab.data.tables.reading import number_column, read_cells

_TRAINED = "the checkpoint needs it"


def read_input(path: Path, metadata: TabularMetadata, bad_rows: Policy) -> tuple[EncodedRows, list[int]]:
    """Read the rows to predict; columns that the training did not have are ignored.

    Args:
        path: The CSV file.
        metadata: What the checkpoint knows of the training rows.
        bad_rows: Whether rows that can't be used are errors or left out.

    Returns:
        The rows, and the number of each in the file.

    Raises:
        UserError: The file can't be read, or is not like that of the training.
    """
    cells = read_cells(path, "--input", bad_rows)
    categories = {name: cells.column(name, _TRAINED) for name in metadata.categories}
    numbers = {}
    for name in metadata.numbers:
        cells.column(name, _TRAINED)
        numbers[name] = number_column(cells, name, "the checkpoint needs numbers")
    good = np.array([line not in cells.bad for line in cells.lines])
    settle_and_tell(cells.bad, int(good.sum()))
    numbers = {name: column[good] for name, column in numbers.items()}
    categories = {name: column[good] for name, column in categories.items()}
    _tell_unseen(path, numbers, categories, metadata)
    rows = [row for row, own in zip(cells.rows, good, strict=True) if own]
    return EncodedRows(*encode(numbers, categories, metadata, path)), rows


def _tell_unseen(
    path: Path, numbers: dict[str, np.ndarray], categories: dict[str, np.ndarray], metadata: TabularMetadata
) -> None:
    """Tell of categories that training did not know, and of numbers that it never missed."""
    found = []
    for name, column in categories.items():
        known = {"", *metadata.categories[name]}
        if unseen := [text for text in column if text not in known]:
            found.append(f"{name!r} ({len(set(unseen)):,} in {_rows(len(unseen))})")
    if found:
        rank_zero_info(f"{path}: categories that came less than twice in training count as unseen: {', '.join(found)}")
    missing = {name: int(np.isnan(column).sum()) for name, column in numbers.items() if name not in metadata.indicated}
    found = [f"{name!r} ({_rows(count)})" for name, count in missing.items() if count]
    if found:
        rank_zero_info(f"{path}: missing here, but never in training, so that the mean is taken: {', '.join(found)}")


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def write_rows(path: Path, rows: Sequence[int], metadata: TabularMetadata, predicted: Tensor) -> None:
    """Write a row per row of the input: its number, and class and probabilities, or a number for each target.

    Args:
        path: The CSV file; it is replaced in one step.
        rows: Number of each row.
        metadata: What was trained, with the names of classes or targets.
        predicted: Probabilities, shape (row, class), or predictions in the units of the file, (row, target).

    Raises:
        UserError: A prediction is not finite, or the file can't be written.
    """
    names = [f"row {row}" for row in rows]
    if metadata.task == "classification":
        write_classes(path, {"row": rows}, names, metadata.class_names, predicted)
        return
    check_finite(predicted, names)
    lines = zip(rows, predicted.tolist(), strict=True)
    header = ["row", *(PREDICTED + name for name in metadata.targets)]
    write_table(path, header, ([row, *(f"{value:.7g}" for value in values)] for row, values in lines))
