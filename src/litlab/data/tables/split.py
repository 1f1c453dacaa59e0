"""Which rows of a table are for training, validation and test."""

from collections.abc import Sequence

import numpy as np
import torch

from litlab.data.split import partition
from litlab.errors import UserError

SPLITS = ("train", "val", "test")


def by_row(classes: Sequence[str] | None, given: np.ndarray, val: float, test: float) -> np.ndarray:
    """Draw rows at random, the same for every seed; classes in proportion.

    Args:
        classes: Class of each row; None where there are none.
        given: The split that each row has so far, (row,): what is missing is drawn from train.
        val: Share of the training rows for validation, where there is none yet.
        test: Share of the training rows for the test, likewise.

    Returns:
        The split of each row, (row,).
    """
    labels = np.zeros(len(given), dtype=np.int64)
    if classes is not None:
        labels = np.unique(np.asarray(classes, dtype=str), return_inverse=True)[1]
    places = {name: np.flatnonzero(given == name) for name in SPLITS if (given == name).any()}
    drawn = partition({name: torch.from_numpy(labels[own]) for name, own in places.items()}, val, test, seed=0)
    parts = given.copy()
    for name, (origin, own) in drawn.items():
        parts[places[origin][own.numpy()]] = name
    return parts


def by_unit(units: np.ndarray, setting: str, column: str, val: float, test: float) -> np.ndarray:
    """Split a table so that rows of one group, or of one time, stay together.

    Groups are drawn at random, the same for every seed. Of times the latest are for the test, those before for
    validation. As many as come nearest to the share, but at least one for each split.

    Args:
        units: Group or time of each row, (row,), of a type that can be sorted.
        setting: group_column or time_column.
        column: Its name in the file.
        val: Share of the rows for validation.
        test: Share of the rows for the test.

    Returns:
        The split of each row, (row,).

    Raises:
        UserError: There are fewer groups or times than splits.
    """
    wanted = {name: share for name, share in (("test", test), ("val", val)) if share}
    different, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    if len(different) <= len(wanted):
        raise UserError(
            f"data.{setting}: {column!r} has {len(different)} different values, too few for train and "
            f"{' and '.join(wanted)}; give more, or set data.{list(wanted)[-1]}_fraction 0"
        )
    order = np.arange(len(different))[::-1]
    if setting == "group_column":
        order = torch.randperm(len(different), generator=torch.Generator().manual_seed(0)).numpy()
    part_of = np.full(len(different), "train", dtype=object)
    for number, (name, share) in enumerate(wanted.items()):
        nearest = 1 + int(np.abs(sizes[order].cumsum() - share * len(units)).argmin())
        count = min(nearest, len(order) - (len(wanted) - number))  # each split that follows gets one
        part_of[order[:count]] = name
        order = order[count:]
    return part_of[unit]
