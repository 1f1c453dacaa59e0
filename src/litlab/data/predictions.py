"""Files of predictions: CSV or Parquet, written in one step or not at all."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litlab.data.cells import read_texts
from litlab.data.files import FileFormat, Frame, check_columns
from litlab.data.target import Target
from litlab.errors import UserError
from litlab.util.files import write_text

SUFFIXES = (".csv", ".parquet")


def write_predictions(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns by their names; a file that is there is replaced.

    Raises:
        UserError: The file can't be written, or its name ends in none of `SUFFIXES`.
    """
    import pandas as pd

    # Into memory first: `write_text` puts the whole file there in one step
    check_output(path)
    frame, buffer = pd.DataFrame(dict(columns)), io.BytesIO()
    if path.suffix == ".parquet":
        frame.to_parquet(buffer, index=False)
    else:
        frame.to_csv(buffer, index=False)  # the fewest digits that give a number back
    write_text(path, buffer.getvalue())


def check_output(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a file of predictions whose kind is not known."""
    if not path.name.endswith(suffixes):
        raise UserError(
            f"--output: {path} ends in none of {', '.join(suffixes)}; name a file that does"
        )


def write_outputs(
    path: Path, inputs: Mapping[str, Sequence[Any]], target: Target, outputs: Tensor
) -> None:
    """Write the predictions of a model: columns of the input, then those of the target.

    If a class has the name of a column before it, the columns of all classes begin with ``class_``;
    a column of the input that is called like one of the target begins with ``id_``.

    Args:
        path: The file.
        inputs: What identifies each input, by the name of the column.
        target: What is predicted.
        outputs: As of `Target.tabulate`.

    Raises:
        UserError: There are more or fewer columns than the target has names, an output is not
            finite, or the file can't be written.
    """
    if outputs.shape[1] != len(target.names):
        raise UserError(
            f"predict: predict_step returns {outputs.shape[1]} columns for {target.summary}; "
            "return one for each, or override write_predictions of the data"
        )
    # By the first column that identifies inputs: numbers of rows, or names of files
    check_finite(outputs, next(iter(inputs.values())))
    # A class may be called "row", or "probability"
    taken = {*inputs, "prediction", "probability"}
    prefix = "class_" if taken & {*target.names} else ""
    columns = target.tabulate(outputs.numpy(), prefix)
    inputs = {f"id_{name}" if name in columns else name: cells for name, cells in inputs.items()}
    write_predictions(path, {**inputs, **columns})


def name_rows(raw: Frame, id_column: str | None, where: str) -> dict[str, list[Any]]:
    """Return what identifies rows in a file of predictions: their numbers, and the column of ids
    if there is one.
    """
    names: dict[str, list[Any]] = {"row": raw.index.tolist()}
    if id_column is not None:
        check_columns(raw, where, {id_column: "set data.id_column"})
        # As texts, so that 205 is not 205.0 where another id is missing
        names[id_column] = read_texts(raw[id_column], FileFormat()).fillna("").tolist()
    return names


def check_finite(outputs: Tensor, names: Sequence[Any]) -> None:
    """Refuse predictions, (prediction, ...), that are not finite; the message has the name of the
    first such input.
    """
    # One wrong value in any of its columns spoils a prediction
    wrong = (~torch.isfinite(outputs)).flatten(1).any(dim=1).nonzero().flatten().tolist()
    if wrong:
        raise UserError(
            f"predict: the model's output for {names[wrong[0]]} ({len(wrong)} in all) is NaN or "
            "infinite, so no file is written; try trainer.precision 32-true or another checkpoint"
        )
