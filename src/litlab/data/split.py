"""Which samples are for training, validation and test: drawn by class, by group or by time, or a
fold of them.

All draws are the same for every seed of a run.
"""

from typing import Any

import numpy as np

from litlab.errors import UserError

SPLITS = ("train", "val", "test")


def read_fold(fold: str) -> tuple[int, int]:
    """Return number and count of a fold such as "0/5", the first of five.

    Raises:
        UserError: It is not valid.
    """
    number, _, count = fold.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count) > 1):
        raise UserError(
            f"data.fold: {fold} is not valid; give its number, from 0, and how many there are: 0/5"
        )
    return int(number), int(count)


def split_samples(
    given: np.ndarray,
    val_fraction: float,
    test_fraction: float,
    *,
    labels: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
    fold: str | None = None,
) -> np.ndarray:
    """Divide samples.

    Args:
        given: The split that each sample has so far, str of shape (sample,). What is missing is
            taken from train.
        val_fraction: Share of the training samples for validation, where there is none yet.
        test_fraction: Share of the training samples for the test, where there is none yet.
        labels: Class of each sample, int64 of shape (sample,): each split gets its share of all
            classes.
        groups: Group of each sample, (sample,): each group is in one split.
        times: Time of each sample, (sample,): the latest are for the test, those before for
            validation.
        fold: As of `read_fold`: the training samples make so many folds, one of which is the test.
            By time, a fold is a block, and the training is on all before it. A test split that is
            there already is left out.

    Returns:
        The split of each sample, str of shape (sample,); empty where it is left out.

    Raises:
        UserError: There are fewer samples, groups or times than splits, or than folds.
    """
    split = given.astype(object)
    if fold is not None:
        split[split == "test"] = ""
    train = np.flatnonzero(split == "train")
    pick = [None if values is None else values[train] for values in (labels, groups, times)]
    unit = _arrange(len(train), *pick)

    # A fold is a block of units. In time the first block is for training alone, and what comes
    # after the fold unused.
    if fold is not None:
        number, count = read_fold(fold)
        first = int(times is not None)
        units = 1 + unit.max(initial=-1)
        if units < count + first:
            raise UserError(
                f"data.fold: {units} samples, groups or times are too few for {count} "
                "folds; set fewer"
            )
        block = unit * (count + first) // units - first
        split[train[block == number]] = "test"
        if times is not None:
            split[train[block > number]] = ""

    # What is missing comes from the end of what is left.
    for name, fraction in (("test", test_fraction), ("val", val_fraction)):
        if fraction and name not in split:
            is_left = split[train] == "train"
            begin = _find_end(unit[is_left], fraction * len(train))
            split[train[is_left & (unit >= begin)]] = name
    return split


def _arrange(
    count: int, labels: np.ndarray | None, groups: np.ndarray | None, times: np.ndarray | None
) -> np.ndarray:
    """Find the units that samples are divided by: single samples, groups or times.

    Returns:
        Number of the unit of each sample, int64 of shape (sample,): the first are for training, the
            last for the test.
    """
    import pandas as pd

    if times is not None:
        return np.unique(times, return_inverse=True)[1]
    generator = np.random.default_rng(0)
    if groups is not None:
        different, unit = np.unique(groups, return_inverse=True)
        return generator.permutation(len(different))[unit]

    # Spread each class evenly over [0, 1), in random order: any cut then has its share of all
    # classes. A class's only sample comes first, as it is for training.
    order = generator.permutation(count)
    label = pd.Series(0 if labels is None else labels[order], range(count))
    of_class = label.groupby(label)
    size: Any = of_class.transform("size")
    offset = generator.random(1 + label.max())[label] * (size > 1)
    return order[np.argsort((of_class.cumcount() + offset) / size)].argsort()


def _find_end(unit: np.ndarray, count: float) -> int:
    """Return the unit from which on there are about so many samples; one at least, but never all of
    them.
    """
    units, sizes = np.unique(unit, return_counts=True)
    if len(units) < 2:
        raise UserError(
            "data: too few samples, groups or times for all splits; add some, or set a "
            "fraction to 0"
        )
    after = sizes[::-1].cumsum()[::-1]  # samples of each unit and those behind it
    return int(units[1 + np.abs(after[1:] - count).argmin()])
