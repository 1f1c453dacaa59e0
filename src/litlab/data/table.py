"""Prediction files: CSV with distinct column names, written in one step or not at all."""

import csv
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from litlab.errors import UserError

PREDICTED = "predicted_"  # what the columns of a regression's predictions begin with


def class_columns(columns: Sequence[str], class_names: Sequence[str]) -> list[str]:
    """Name the columns of a classifier's predictions.

    The probability of a class has the name of the class. If one of them has the name of one of the columns before,
    all of them begin with ``class_``.
    """
    taken = {column.casefold() for column in columns}
    prefix = "class_" if any(name.casefold() in taken for name in class_names) else ""
    return [*columns, *(prefix + name for name in class_names)]


def forecast_columns(time_column: str, targets: Sequence[str]) -> list[str]:
    """Name the columns of a forecast: the time, and for each target its forecast, lower and upper bound.

    Bounds end in ``_lower`` and ``_upper``, with more underscores where a target has such a name itself.
    """
    ends = ["_lower", "_upper"]
    while {name + end for name in targets for end in ends} & {time_column, *targets}:
        ends = [f"_{end}" for end in ends]
    return [time_column, *(name + end for name in targets for end in ["", *ends])]


def is_predictions(path: Path) -> bool:
    """Tell a file of predictions by its columns.

    Returns:
        Whether it can have been written by ``predict``; also True for an empty file, in which nothing is lost.
    """
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as stream:
        try:
            columns = set(next(csv.reader(stream), []))
        except csv.Error:
            return False
    bounds = {column for column in columns if column.endswith("_lower") and f"{column[:-5]}upper" in columns}
    numbers = len(columns) > 1 and all(column.startswith(PREDICTED) for column in columns - {"row"})
    return not columns or {"prediction", "probability"} <= columns or bool(bounds) or numbers


def check_finite(outputs: Tensor, names: Sequence[object]) -> None:
    """Refuse predictions of shape (prediction, ...) that are not numbers, by the names of what they were made for.

    Raises:
        UserError: One of them is NaN or infinite.
    """
    wrong = (~torch.isfinite(outputs)).flatten(1).any(dim=1).nonzero().flatten().tolist()
    if wrong:
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UserError(
            f"predict: the model's output for {names[wrong[0]]}{others} is NaN or infinite, so no file is written: "
            f"try trainer.precision 32-true or another checkpoint."
        )


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file of predictions; one that is there is replaced, in one step.

    File names that are not UTF-8 are written as the bytes that they are on the disk.

    Raises:
        UserError: The file can't be written.
    """
    staging = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".output-", dir=path.parent)
        staging = Path(name)
        with open(handle, "w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
            writer = csv.writer(stream)
            writer.writerow(header)
            writer.writerows(rows)
            stream.flush()
            os.fsync(stream.fileno())
        if path.exists():
            shutil.copymode(path, staging)
        else:
            os.umask(mask := os.umask(0))  # there is no other way to read it
            staging.chmod(0o666 & ~mask)  # temporary files are private
        os.replace(staging, path)
    except OSError as error:
        raise UserError(f"{path}: the predictions can't be written ({error.strerror})") from error
    finally:
        if staging is not None:
            staging.unlink(missing_ok=True)


def write_classes(
    path: Path,
    columns: Mapping[str, Sequence[object]],
    names: Sequence[object],
    class_names: Sequence[str],
    probabilities: Tensor,
) -> None:
    """Write the predictions of a classifier: columns of the input, prediction, its probability, and all probabilities.

    Args:
        path: The CSV file; it is replaced in one step.
        columns: What identifies each input, by the name of the column.
        names: What each input is called in a message.
        class_names: The classes; see `class_columns`.
        probabilities: Shape (input, class).

    Raises:
        UserError: A probability is not finite, or the file can't be written.
    """
    if probabilities.shape != (len(names), len(class_names)):
        raise ValueError(
            f"probabilities of shape {tuple(probabilities.shape)} for {len(names)} inputs and {len(class_names)} "
            "classes"
        )
    check_finite(probabilities, names)
    best, number = probabilities.float().max(dim=1)
    inputs = zip(*columns.values(), strict=True)
    rows = zip(inputs, number.tolist(), best.tolist(), probabilities.tolist(), strict=True)
    write_table(
        path,
        class_columns([*columns, "prediction", "probability"], class_names),
        ([*cells, class_names[n], f"{p:.6f}", *(f"{v:.6f}" for v in row)] for cells, n, p, row in rows),
    )
