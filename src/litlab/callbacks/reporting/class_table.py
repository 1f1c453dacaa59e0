"""Test results of each class in a table, where classes are uneven: a mean over samples hides the rare ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from litlab.callbacks.reporting.protocols import Labelled
from litlab.callbacks.reporting.tables import publish_table
from litlab.util.text import print_table

if TYPE_CHECKING:
    from rich.table import Table

UNEVEN = 1.5  # times as many samples as another class
HEADER = ("class", "training samples", "test samples", "precision", "recall", "F1")


def report_classes(trainer: Trainer, folder: Path | None, counts: Tensor, names: list[str]) -> None:
    """Print, log and save the results of each class, if training or test samples are uneven. Call it on rank zero.

    Args:
        trainer: The trainer that tests.
        folder: The run folder; None for a run without one.
        counts: Samples by (true class, predicted class), int64 of shape (classes, classes).
        names: Name of each class.
    """
    training = _training_counts(getattr(trainer, "datamodule", None), len(counts))
    tested = counts.sum(dim=1)
    if not any(bool(some.max() > UNEVEN * some.min()) for some in (training, tested) if some is not None):
        return
    from rich import get_console

    header, rows = class_rows(counts, names, training)
    publish_table(trainer, folder, "classes", header, rows)
    get_console().print("Test: each class")
    print_table(_table(header, rows), get_console())


def class_rows(counts: Tensor, names: list[str], training: Tensor | None) -> tuple[list[str], list[list[Any]]]:
    """Return header and rows of the table, from the rarest class to the most frequent one.

    Args:
        counts: Samples by (true class, predicted class), int64 of shape (classes, classes).
        names: Name of each class.
        training: Training samples of each class, (classes,); None where they are not known.
    """
    right, true, predicted = counts.diagonal(), counts.sum(dim=1), counts.sum(dim=0)
    precision, recall, f1 = right / predicted, right / true, 2 * right / (true + predicted)  # NaN: there are none
    columns = [names, training, true, precision, recall, f1]
    order = (true if training is None else training).argsort(stable=True).tolist()
    kept = [place for place, column in enumerate(columns) if column is not None]
    rows = [[_value(columns[place], number) for place in kept] for number in order]
    return [HEADER[place] for place in kept], rows


def _training_counts(data: Any, classes: int) -> Tensor | None:
    """Return the training samples of each class, int64 of shape (classes,); None where the data does not tell."""
    labels = data.labels("train") if isinstance(data, Labelled) and "train" in data.sizes else None
    return None if labels is None else torch.bincount(labels.cpu(), minlength=classes)


def _value(column: Any, number: int) -> Any:
    value = column[number]
    return value.item() if isinstance(value, Tensor) else value


def _table(header: list[str], rows: list[list[Any]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in header:
        table.add_column(name, justify="left" if name == "class" else "right")
    for row in rows:  # not strings: brackets in a name are not markup
        table.add_row(*(Text(_shown(value)) for value in row))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else value
