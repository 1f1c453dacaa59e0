"""Columns as tensors: what is learned from the training rows, and how any rows are encoded with it."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.tables.metadata import TabularMetadata
from litlab.data.tables.source import Table
from litlab.errors import UserError

_FARTHEST = 1e6  # standard deviations from the mean


def measured(table: Table, targets: list[str], ignore: list[str], source: str) -> dict[str, Any]:
    """Measure the training rows.

    Args:
        table: The table.
        targets: Names of its targets.
        ignore: Columns that are ignored already, for the error message.
        source: What the table is, for the error message.

    Returns:
        The fields of `TabularMetadata`, but for `generated`.

    Raises:
        UserError: A column or target is the same in all training rows, or can't be scaled, or tells nothing.
    """
    train = table.places("train")
    useless: dict[str, str] = {}
    mean, std, indicated, categories = [], [], [], {}
    for name, column in table.numbers.items():
        values = column[train]
        known = values[~np.isnan(values)]
        some_missing = len(known) < len(values)
        if not len(known):
            useless[name] = "has no value in any training row"
        elif known.min() == known.max() and not some_missing:
            useless[name] = f"is {known[0]:g} in all training rows"
        elif column[0] in (0, 1) and np.array_equal(column, column[0] + np.arange(len(column))):
            useless[name] = "counts the rows"
        else:
            own_mean, own_std = _moments(known, name, source)
            mean.append(own_mean)
            std.append(own_std)
            indicated += [name] * some_missing
    for name, column in table.categories.items():
        counts = Counter(column[train])
        missing = counts.pop("", 0)
        kept = [text for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count > 1]
        if not counts:
            useless[name] = "has no value in any training row"
        elif not kept:
            useless[name] = "has another text in each training row"
        elif len(counts) == 1 and not missing:
            useless[name] = f"is {kept[0]!r} in all training rows"
        categories[name] = kept
    if useless:
        few = [f"{name!r} {what}" for name, what in list(useless.items())[:3]]
        more = f", and {len(useless) - 3} more like them" if len(useless) > 3 else ""
        raise UserError(
            f"{source}: column {', '.join(few)}{more}; leave out what tells nothing: --data.ignore "
            f"'[{', '.join([*ignore, *useless])}]'"
        )
    target_mean, target_std = [], []
    for number, name in enumerate(targets if table.task == "regression" else []):
        values = table.target[train, number]
        if values.min() == values.max():
            raise UserError(
                f"{source}: target {name!r} is {values[0]:g} in all training rows; there is nothing to learn"
            )
        own_mean, own_std = _moments(values, name, source)
        target_mean.append(own_mean)
        target_std.append(own_std)
    if table.task == "classification" and len(table.class_names) < 2:
        only = table.class_names[0]
        raise UserError(f"{source}: target {targets[0]!r} is {only!r} in all training rows; 2 classes are needed")
    return {
        "task": table.task, "class_names": table.class_names, "targets": targets, "target_mean": target_mean,
        "target_std": target_std, "numbers": list(table.numbers), "mean": mean, "std": std, "indicated": indicated,
        "categories": categories,
    }  # fmt: skip


def _moments(values: np.ndarray, name: str, source: str) -> tuple[float, float]:
    """Return mean and standard deviation; a UserError where numbers can't tell them."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        mean, std = float(values.mean()), float(values.std())
    if values.min() == values.max():
        return mean, 1.0  # what differs is whether there is a value
    if not 0 < std < np.inf:
        raise UserError(
            f"{source}: column {name!r} runs from {values.min():g} to {values.max():g} in the training rows, which "
            f"can't be scaled; correct it, or add it to data.ignore"
        )
    return mean, std


def encode(
    numbers: dict[str, np.ndarray], categories: dict[str, np.ndarray], metadata: TabularMetadata, path: Path | str
) -> tuple[Tensor, Tensor]:
    """Encode the inputs of some rows.

    Args:
        numbers: Columns of numbers, float64 of shape (row,), NaN where one is missing.
        categories: Columns of categories, str of shape (row,), empty where one is missing.
        metadata: What was learned from the training rows.
        path: What the table is, for the error message.

    Returns:
        Numbers, standardised and 0 where one is missing, followed by 1 or 0 for each of the `indicated` columns:
        whether it is missing; float32 (row, column). And numbers of the categories, 0 for one that is missing, or that
        was seen less than twice in training, else from 1; int64 (row, column).

    Raises:
        UserError: A number is too far from those of the training.
    """
    rows = len(next(iter((numbers | categories).values())))
    columns = [
        standardised(numbers[name], name, mean, std, path)
        for name, mean, std in zip(metadata.numbers, metadata.mean, metadata.std, strict=True)
    ]
    scaled = np.nan_to_num(np.stack(columns, axis=1), nan=0.0) if columns else np.zeros((rows, 0))
    missing = [np.isnan(numbers[name]) for name in metadata.indicated]
    codes = np.zeros((rows, len(metadata.categories)), dtype=np.int64)
    for place, (name, known) in enumerate(metadata.categories.items()):
        code = {text: number for number, text in enumerate(known, 1)}
        codes[:, place] = [code.get(text, 0) for text in categories[name]]
    both = np.concatenate([scaled, np.stack(missing, axis=1)], axis=1) if missing else scaled
    return torch.from_numpy(both.astype(np.float32)), torch.from_numpy(codes)


def standardised(values: np.ndarray, name: str, mean: float, std: float, path: object) -> np.ndarray:
    """Standardise a column of numbers, in which NaN stands for a missing one.

    Args:
        values: The numbers, float64 of shape (row,).
        name: Name of the column.
        mean: Mean of the training rows.
        std: Their standard deviation.
        path: What the table is, for the error message.

    Raises:
        UserError: A number is too far from those of the training.
    """
    scaled = (values - mean) / std
    far = np.abs(np.nan_to_num(scaled, nan=0.0)) > _FARTHEST
    if far.any():
        raise UserError(
            f"{path}: column {name!r} is {values[far][0]:g}, too far from the training rows; correct or empty it"
        )
    return scaled
