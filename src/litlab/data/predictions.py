"""Files of predictions: CSV or Parquet, written in one step or not at all."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litlab.errors import UserError, first_line
from litlab.util.files import write_text

PREDICTED = "predicted_"  # what the columns of a regression's predictions begin with
SUFFIXES = (".csv", ".parquet")


def write_predictions(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns by their names; a file that is there is replaced.

    Raises:
        UserError: The file can't be written, or its name ends in none of `SUFFIXES`.
    """
    import pandas as pd

    check_output(path)
    frame, buffer = pd.DataFrame(dict(columns)), io.BytesIO()
    try:
        if path.suffix == ".parquet":
            frame.to_parquet(buffer, index=False)
        else:
            frame.to_csv(buffer, index=False, float_format="%.7g")
    except ImportError as error:
        raise UserError(f"--output: {path} can't be written ({first_line(error)})") from error
    write_text(path, buffer.getvalue())


def check_output(path: Path) -> None:
    """Refuse a file of predictions whose kind is not known."""
    if path.suffix not in SUFFIXES:
        raise UserError(
            f"--output: {path} ends in none of {', '.join(SUFFIXES)}; name a file that does"
        )


def write_classes(
    path: Path,
    inputs: Mapping[str, Sequence[Any]],
    class_names: Sequence[str],
    probabilities: Tensor,
) -> None:
    """Write the predictions of a classifier: columns of the input, prediction, its probability, and
        all probabilities.

    If a class has the name of one of the columns before, all of them begin with ``class_``.

    Args:
        path: The file.
        inputs: What identifies each input, by the name of the column.
        class_names: The classes.
        probabilities: Shape (input, class).

    Raises:
        UserError: A probability is not finite, or the file can't be written.
    """
    check_finite(probabilities, next(iter(inputs.values())))
    best, number = probabilities.float().max(dim=1)
    names = [class_names[place] for place in number.tolist()]
    columns = {**inputs, "prediction": names, "probability": best.tolist()}
    prefix = "class_" if columns.keys() & class_names else ""
    of_classes = {
        prefix + name: probabilities[:, place].tolist() for place, name in enumerate(class_names)
    }
    write_predictions(path, columns | of_classes)


def check_finite(outputs: Tensor, names: Sequence[Any]) -> None:
    """Refuse predictions, shape (prediction, ...), that are not numbers, by what they were made
    for.
    """
    wrong = (~torch.isfinite(outputs)).flatten(1).any(dim=1).nonzero().flatten().tolist()
    if wrong:
        raise UserError(
            f"predict: the model's output for {names[wrong[0]]} ({len(wrong)} in all) is NaN or "
            "infinite, so no file is written; try trainer.precision 32-true or another checkpoint"
        )
