"""Columns of a table: read as numbers or words, measured on the training rows, and laid out as arrays."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.classes import sort_classes
from litlab.data.frames import (
    Column,
    FileFormat,
    Frame,
    Policy,
    Source,
    check_columns,
    drop_bad_rows,
    is_mostly_numbers,
    read_frame,
    to_numbers,
)
from litlab.data.tables.metadata import TabularMetadata, Task
from litlab.errors import UserError
from litlab.util.text import some

Problems = dict[Hashable, str]  # what is wrong with a row, by its number in the file
_FEW = 20  # different numbers in a target that may still be classes ...
_EACH = 5  # ... if each of them comes so often, on average
_LARGEST = 1e16  # standard deviation: float32 holds the squares


def choose_task(column: Column, form: FileFormat, where: object) -> Task:
    """Choose what to do with a target, and say so: words and few different numbers are classes."""
    numbers, _ = to_numbers(column, form, where)
    is_few = numbers.nunique() <= min(_FEW, numbers.count() / _EACH)
    task: Task = "classification" if is_few else "regression"
    rank_zero_info(f"data.task: {task}, as the cells of column {column.name!r} tell; set it to change that")
    return task


def read_columns(
    frame: Frame, is_text: Mapping[str, bool | None], form: FileFormat, where: object
) -> tuple[dict[str, Column], Problems]:
    """Read columns as texts, or as numbers, float64; None: as numbers where most cells are some.

    Returns:
        The columns by their names; and what is wrong with a row, as there is a word among numbers.
    """
    columns, problems = {}, {}
    for name, as_text in is_text.items():
        column = frame[name]
        columns[name], wrong = to_numbers(column, form, where)
        if as_text is None:
            as_text = column.dtype == "category" or not is_mostly_numbers(columns[name], wrong)
        if as_text:  # a whole number has no decimals, though a file may hold it as a float
            columns[name] = column.convert_dtypes().astype("string")
        else:
            note_cells(problems, column, wrong, ", not a number")
    return columns, problems


def note_cells(problems: Problems, column: Column, wrong: Column, reason: str = "") -> None:
    """Add the rows whose cell in a column is wrong to the problems."""
    for row, cell in column[wrong].astype("string").fillna("missing").items():
        problems.setdefault(row, f"{column.name!r} is {cell}{reason}")


def read_rows(source: Source, known: Mapping[str, Any], form: FileFormat, setting: str, bad_rows: Policy) -> Frame:
    """Read the rows that a trained model is to predict; columns that it does not know are left out.

    Args:
        source: As of `read_frame`.
        known: The fields ``numbers`` and ``categories`` of `TabularMetadata`.
        form: How the cells are written.
        setting: What messages call the source where it has no name.
        bad_rows: Whether rows that can't be used are errors or left out.

    Returns:
        Its columns of numbers, float64, and of categories, texts.
    """
    import pandas as pd

    frame = read_frame(source, form, setting=setting, bad_rows=bad_rows)
    where = source if isinstance(source, str) else setting
    is_text = dict.fromkeys(known["numbers"], False) | dict.fromkeys(known["categories"], True)
    check_columns(frame, where, dict.fromkeys(is_text, "the model needs it"))
    columns, problems = read_columns(frame, is_text, form, where)
    return drop_bad_rows(pd.DataFrame(columns), problems, bad_rows, where)


def tell_of_unseen(rows: Frame, categories: Mapping[str, list[str]], where: object) -> None:
    """Tell of categories that training did not know, in rows by `read_rows`."""
    for name, texts in categories.items():
        unseen = rows[name][~rows[name].isin(texts)].dropna()
        if len(unseen):
            count = f"unseen categories: {unseen.nunique():,} in {len(unseen):,} rows"
            rank_zero_info(f"{where}: unlike the training rows: {name!r} ({count})")


def measure(
    table: Mapping[str, Frame], targets: list[str], ignore: list[str], generated: bool, where: object
) -> TabularMetadata:
    """Measure the training rows.

    Args:
        table: The rows of each split: float64, or texts. Those of all splits tell the classes.
        targets: Columns to predict.
        ignore: Columns that are left out already, for messages.
        generated: Whether the table is made up.
        where: What messages call the table.

    Raises:
        UserError: A column tells nothing, or can't be scaled.
    """
    frame = table["train"]
    useless = [name for name in frame.columns if _is_useless(frame[name])]
    if useless:
        raise UserError(
            f"{where}: nothing can be learned from column {some(useless)}: in the training rows it is constant, counts "
            f"them, or has another text in each; use --data.ignore '[{', '.join([*ignore, *useless])}]', or another "
            "target"
        )
    numbers = frame.select_dtypes("number")
    mean, std = numbers.mean(), numbers.std(ddof=0).mask(numbers.nunique() == 1, 1.0)
    for name in std.index[~std.between(1 / _LARGEST, _LARGEST)]:
        raise UserError(
            f"{where}: column {name!r} can't be scaled, its standard deviation is {std[name]:g}; use another unit, or "
            "leave it out"
        )
    regressed = [name for name in targets if name in numbers]
    labels = [] if regressed else [label for rows in table.values() for label in rows[targets[0]].unique()]
    inputs = numbers.columns.drop(regressed).tolist()
    counts = {name: frame[name].value_counts() for name in frame if name not in [*numbers, *targets]}
    return TabularMetadata(
        class_names=sort_classes(labels),
        task="regression" if regressed else "classification",
        targets=targets,
        target_mean=mean[regressed].tolist(),
        target_std=std[regressed].tolist(),
        numbers=inputs,
        mean=mean[inputs].tolist(),
        std=std[inputs].tolist(),
        indicated=[name for name in inputs if numbers[name].isna().any()],
        categories={name: count.index[count > 1].tolist() for name, count in counts.items()},
        generated=generated,
    )


def _is_useless(column: Column) -> bool:
    """Return whether a column is constant, counts the rows, or has another text in each."""
    if column.nunique(dropna=False) == 1:
        return True
    if column.dtype == "float64":
        return (column - column.index).nunique(dropna=False) == 1
    return column.dropna().is_unique


def lay_out(frame: Frame, known: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Lay the inputs of some rows out as a deployed model takes them.

    Args:
        frame: The rows: float64 and texts.
        known: The fields ``numbers`` and ``categories`` of `TabularMetadata`.

    Returns:
        ``numbers``, NaN where one is missing, float64 (row, column); and ``categories``, the place of each in its list
        from 1, 0 for one that is missing or was seen less than twice in training, int64 (row, column).
    """
    import pandas as pd

    codes = {
        name: 1 + pd.Index(texts, dtype="string").get_indexer(frame[name])
        for name, texts in known["categories"].items()
    }
    categories = pd.DataFrame(codes, frame.index).to_numpy("int64", copy=True)
    return {"numbers": frame[known["numbers"]].to_numpy("float64", copy=True), "categories": categories}


def lay_out_target(frame: Frame, known: TabularMetadata) -> np.ndarray:
    """Return the classes of some rows, int64 of shape (row,), or their targets, float32 of shape (row, target)."""
    import pandas as pd

    if known.class_names:
        return pd.Index(known.class_names, dtype="string").get_indexer(frame[known.targets[0]])
    return frame[known.targets].to_numpy("float32", copy=True)
