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

Problems = dict[Hashable, str]  # what is wrong with a row, by its number in the file
_FEW = 20  # different whole numbers in a target that may still be classes ...
_EACH = 5  # ... if each of them comes so often, on average
_LARGEST = 1e16  # of a target: float32 holds sums of its squares
_FARTHEST = 1e6  # standard deviations from the mean
_NO_NUMBER = ", not a number (see data.missing, data.categories)"


# ---- cells


def choose_task(column: Column, form: FileFormat, where: object) -> Task:
    """Choose what to do with a target, and say so: words and few whole numbers are classes."""
    numbers, wrong = to_numbers(column, form, where)
    different = numbers.nunique()
    task: Task = "regression"
    reason = "numbers"
    if not is_mostly_numbers(numbers, wrong):
        task, reason = "classification", "words"
    elif (numbers.dropna() % 1 == 0).all() and different <= min(_FEW, numbers.count() / _EACH):
        task, reason = "classification", f"{different} different whole numbers"
    rank_zero_info(f"data.task: {task}, as column {column.name!r} holds {reason}; set it to change that")
    return task


def read_target(column: Column, task: Task, form: FileFormat, where: object, problems: Problems) -> Column:
    """Read a target, texts or float64. Rows without one, or with one that can't be learned, are added to the problems.

    The squares of what is beyond 1e16 would not fit into float32.
    """
    note_cells(problems, column, column.isna(), "")
    if task == "classification":
        return read_texts(column)
    numbers, wrong = to_numbers(column, form, where)
    note_cells(problems, column, wrong, _NO_NUMBER)
    note_cells(problems, column, numbers.abs() > _LARGEST, ", too large for float32: use a larger unit")
    return numbers


def read_input(column: Column, form: FileFormat, where: object, problems: Problems) -> Column:
    """Read an input: float64 where most cells are numbers, else texts. A few wrong cells are added to the problems."""
    numbers, wrong = to_numbers(column, form, where)
    if column.dtype == "category" or not is_mostly_numbers(numbers, wrong):
        return read_texts(column)
    note_cells(problems, column, wrong, _NO_NUMBER)
    return numbers


def read_texts(column: Column) -> Column:
    """Read a column as texts; a whole number has no decimals, though a file may hold it as a float."""
    return column.convert_dtypes().astype("string")


def note_cells(problems: Problems, column: Column, wrong: Column, reason: str) -> None:
    """Add the rows whose cell in a column is wrong to the problems."""
    import pandas as pd

    for row, cell in column[wrong].items():
        problems.setdefault(row, f"{column.name!r} is {'missing' if pd.isna(cell) else cell}{reason}")


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
    check_columns(frame, where, dict.fromkeys([*known["numbers"], *known["categories"]], "the model needs it"))
    problems: Problems = {}
    columns = {name: read_texts(frame[name]) for name in known["categories"]}
    for name in known["numbers"]:
        columns[name], wrong = to_numbers(frame[name], form, where)
        note_cells(problems, frame[name], wrong, ", not a number")
    return drop_bad_rows(pd.DataFrame(columns), problems, bad_rows, where)


def tell_of_unlike(frame: Frame, known: TabularMetadata, where: object) -> None:
    """Tell of categories that training did not know, and of numbers that it never missed, in rows by `read_rows`."""
    unlike = []
    for name, texts in known.categories.items():
        unseen = frame[name].dropna()
        unseen = unseen[~unseen.isin(texts)]
        if len(unseen):
            unlike.append(f"{name!r} (unseen categories: {unseen.nunique():,} in {len(unseen):,} rows)")
    missing = frame[known.numbers].drop(columns=known.indicated).isna().sum()
    unlike += [f"{name!r} (missing in {count:,} rows, the mean is taken)" for name, count in missing.items() if count]
    if unlike:
        rank_zero_info(f"{where}: unlike the training rows: {', '.join(unlike)}")


# ---- what is learned from the training rows


def measure(
    frame: Frame, task: Task, targets: list[str], ignore: list[str], generated: bool, where: object
) -> TabularMetadata:
    """Measure the training rows.

    Args:
        frame: Their inputs and targets, by `read_input` and `read_target`.
        task: What is done with the targets.
        targets: Columns to predict.
        ignore: Columns that are left out already, for messages.
        generated: Whether the table is made up.
        where: What messages call the table.

    Raises:
        UserError: A target or inputs are the same in all rows, or tell nothing, or can't be scaled.
    """
    for name in targets:
        different = frame[name].nunique()
        if different == 1 or (different == len(frame) and task == "classification"):
            raise UserError(
                f"{where}: target {name!r} has {different:,} different values in {len(frame):,} training rows, so "
                "there is nothing to learn; name another with --data.target, or set data.task"
            )
    inputs = frame.drop(columns=targets)
    useless = {name: reason for name, column in inputs.items() if (reason := _find_useless(column))}
    if useless:
        named = [f"{name!r} {reason}" for name, reason in list(useless.items())[:3]]
        more = f", and {len(useless) - 3} more like them" if len(useless) > 3 else ""
        raise UserError(
            f"{where}: column {', '.join(named)}{more}; leave out what tells nothing: --data.ignore "
            f"'[{', '.join(map(str, [*ignore, *useless]))}]'"
        )

    numbers = frame.select_dtypes("number")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = numbers.mean(), numbers.std(ddof=0).mask(numbers.nunique() == 1, 1.0)
    for name in std.index[~std.between(1 / _LARGEST, 1e300)]:
        raise UserError(
            f"{where}: column {name!r} runs from {numbers[name].min():g} to {numbers[name].max():g} in the training "
            "rows, which can't be scaled; correct it, or leave it out"
        )
    categories = {}
    for name, column in inputs.select_dtypes("string").items():
        counts = column.value_counts()
        categories[name] = sorted(counts.index[counts > 1], key=lambda text, counts=counts: (-counts[text], text))
    names = [name for name in numbers.columns if name not in targets]
    regressed = targets if task == "regression" else []
    return TabularMetadata(
        class_names=[] if regressed else sort_classes(frame[targets[0]]),
        task=task,
        targets=targets,
        target_mean=mean[regressed].tolist(),
        target_std=std[regressed].tolist(),
        numbers=names,
        mean=mean[names].tolist(),
        std=std[names].tolist(),
        indicated=[name for name in names if numbers[name].isna().any()],
        categories=categories,
        generated=generated,
    )


def _find_useless(column: Column) -> str | None:
    """Return why a column tells nothing."""
    if column.nunique(dropna=False) == 1:
        return f"is {column.iloc[0]} in all training rows"
    if column.dtype == "float64":
        offsets = set(column - column.index)
        return "counts the rows" if len(offsets) == 1 and offsets <= {-2, -1, 0} else None
    return "has another text in each training row" if column.dropna().is_unique else None


# ---- arrays


def lay_out(frame: Frame, known: Mapping[str, Any], where: object) -> dict[str, np.ndarray]:
    """Lay the inputs of some rows out as a deployed model takes them.

    Args:
        frame: The rows, by `read_input` or `read_rows`.
        known: The fields ``numbers``, ``mean``, ``std`` and ``categories`` of `TabularMetadata`.
        where: What messages call the table.

    Returns:
        ``numbers``, NaN where one is missing, float64 (row, column); and ``categories``, the place of each in its list
        from 1, 0 for one that is missing or was seen less than twice in training, int64 (row, column).

    Raises:
        UserError: A number is too far from those of the training.
    """
    import pandas as pd

    numbers = frame[known["numbers"]].to_numpy("float64", copy=True)
    far = np.argwhere(np.abs(numbers - known["mean"]) > _FARTHEST * np.array(known["std"]))
    for row, place in far[:1]:
        raise UserError(
            f"{where}: row {frame.index[row]} ({known['numbers'][place]!r} is {numbers[row, place]:g}, too far from "
            "the training rows); correct or empty it"
        )
    codes = np.zeros((len(frame), len(known["categories"])), np.int64)
    for place, (name, texts) in enumerate(known["categories"].items()):
        codes[:, place] = 1 + pd.Index(texts, dtype=object).get_indexer(pd.Index(frame[name].astype(object)))
    return {"numbers": numbers, "categories": codes}


def hash_rows(frame: Frame) -> Column:
    """Return a digest of each row, uint64."""
    import pandas as pd

    hash_frame: Any = pd.util.hash_pandas_object  # pyright: ignore[reportAttributeAccessIssue]
    return hash_frame(frame, index=False)
