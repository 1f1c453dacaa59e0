"""Predicting: the rows of a new file, and the CSV file with what is predicted for them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.bad_rows import Policy, settle_and_tell
from litlab.data.numbers import no_number
from litlab.data.table import PREDICTED, check_finite, write_table
from litlab.data.tables.encoding import encode
from litlab.data.tables.memory import EncodedRows
from litlab.data.tables.metadata import TabularMetadata
from litlab.data.tables.reading import number_column, read_cells
from litlab.errors import UserError

_TRAINED = "the checkpoint needs it"


def read_input(path: Path, metadata: TabularMetadata, bad_rows: Policy) -> tuple[EncodedRows, list[int]]:
    """Read the rows to predict; columns that the training did not have are ignored.

    Returns:
        The rows, and the number of each in the file.

    Raises:
        UserError: The file can't be read, or is not like that of the training.
    """
    cells = read_cells(path, "--input", bad_rows)
    categories = {name: cells.column(name, _TRAINED) for name in metadata.categories}
    numbers = {}
    for name in metadata.numbers:
        texts = cells.column(name, _TRAINED)
        values = number_column(cells, name, texts, "give numbers as the training did")
        if values is None:
            places = np.flatnonzero(texts != "").tolist()
            raise UserError(f"{cells.named(places)}: {no_number(name, texts[places[0]])}; the checkpoint needs numbers")
        numbers[name] = values
    good = np.array([row not in cells.bad for row in cells.rows])
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
    unseen = {
        name: sum(bool(text) for text in set(column) - set(metadata.categories[name]))
        for name, column in categories.items()
    }
    cells = {
        name: int((~np.isin(column, ["", *metadata.categories[name]])).sum()) for name, column in categories.items()
    }
    found = [f"{name!r} ({unseen[name]:,} in {count:,} rows)" for name, count in cells.items() if count]
    if found:
        rank_zero_info(f"{path}: categories that came less than twice in training count as unseen: {', '.join(found)}")
    missing = {name: int(np.isnan(column).sum()) for name, column in numbers.items() if name not in metadata.indicated}
    found = [f"{name!r} ({count:,} rows)" for name, count in missing.items() if count]
    if found:
        rank_zero_info(f"{path}: missing here, but never in training, so that the mean is taken: {', '.join(found)}")


def write_numbers(path: Path, rows: Sequence[int], targets: Sequence[str], predicted: Tensor) -> None:
    """Write a row per row of the input: its number, and for each target what is predicted, in the units of the file.

    Args:
        path: The CSV file; it is replaced in one step.
        rows: Number of each row.
        targets: Names of the targets.
        predicted: Shape (row, target).

    Raises:
        UserError: A prediction is not finite, or the file can't be written.
    """
    check_finite(predicted, [f"row {row}" for row in rows])
    lines = zip(rows, predicted.tolist(), strict=True)
    header = ["row", *(PREDICTED + name for name in targets)]
    write_table(path, header, ([row, *(f"{value:.7g}" for value in values)] for row, values in lines))
