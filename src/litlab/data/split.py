"""Which samples are for training, validation and test: drawn by class, by group or by time, or a fold of them.

All draws are the same for every seed of a run.
"""

import numpy as np
import torch
from torch import Tensor

from litlab.errors import UserError

SPLITS = ("train", "val", "test")


def read_fold(fold: str) -> tuple[int, int]:
    """Return number and count of a fold such as "0/5", the first of five.

    Raises:
        UserError: It is not valid.
    """
    number, _, count = fold.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count) > 1):
        raise UserError(f"data.fold: {fold} is not valid; give its number, from 0, and how many there are: 0/5")
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
        given: The split that each sample has so far, str of shape (sample,). What is missing is taken from train.
        val_fraction: Share of the training samples for validation, where there is none yet.
        test_fraction: Share of the training samples for the test, where there is none yet.
        labels: Class of each sample, int64 of shape (sample,): each split gets its share of all classes.
        groups: Group of each sample, (sample,): each group is in one split.
        times: Time of each sample, (sample,): the latest are for the test, those before for validation.
        fold: As of `read_fold`: the training samples make so many folds, one of which is the test. By time, a fold is
            a block, and the training is on all before it. A test split that is there already is left out.

    Returns:
        The split of each sample, str of shape (sample,); empty where it is left out.

    Raises:
        UserError: There are fewer groups or times than splits, or than folds.
    """
    split = given.astype(object)
    labels = np.zeros(len(given), np.int64) if labels is None else labels
    units = groups if groups is not None else times
    total = int((split == "train").sum())

    if fold is not None:
        split[split == "test"] = ""
        _set_fold(split, fold, labels, units, by_time=groups is None)
    fractions = {"test": test_fraction, "val": val_fraction}
    missing = [name for name, fraction in fractions.items() if fraction and name not in split]
    for seed, name in enumerate(missing):
        train = np.flatnonzero(split == "train")
        count = max(1, round(fractions[name] * total))
        if units is None:
            taken = draw_by_class(torch.from_numpy(labels[train]), count, seed).numpy()
        else:
            taken = _take_units(units[train], count, shuffle=groups is not None)
        split[train[taken]] = name
    return split


def draw_by_class(labels: Tensor, count: int, seed: int) -> Tensor:
    """Take ``count`` samples at random, from each class in proportion to its size.

    The last sample of a class is never taken, so that no class disappears from what is left.

    Args:
        labels: Class of each sample, int64 of shape (samples,).
        count: How many to take. Fewer are taken where the classes run out.
        seed: Seed of the draw.

    Returns:
        Indices of the samples taken, int64.
    """
    generator = torch.Generator().manual_seed(seed)
    by_class, rank, sizes = _shuffle_by_class(labels, generator)
    size = sizes[labels[by_class]]
    # Spread each class evenly over [0, 1) and cut all at one height. The offset decides at random which classes give
    # one sample more when the cut does not divide evenly.
    offset = torch.rand(len(sizes), generator=generator, dtype=torch.float64)[labels[by_class]]
    height = (rank + offset) / size
    height[rank == size - 1] = torch.inf
    count = min(count, int(height.isfinite().sum()))
    return by_class[torch.argsort(height, stable=True)[:count]]


def _shuffle_by_class(labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return samples at random class after class, the place of each within its class, and the sizes of the classes."""
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    sizes = torch.bincount(labels)
    rank = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[labels[by_class]]
    return by_class, rank, sizes


def _set_fold(split: np.ndarray, fold: str, labels: np.ndarray, units: np.ndarray | None, *, by_time: bool) -> None:
    """Mark one fold of the training samples as test, and what comes after it in time as left out."""
    number, count = read_fold(fold)
    train = np.flatnonzero(split == "train")
    different, unit = np.unique(train if units is None else units[train], return_inverse=True)
    blocks = count + (units is not None and by_time)  # the first one in time is for training alone
    if len(different) < blocks:
        raise UserError(
            f"data.fold: {len(different)} samples, groups or times are too few for {count} folds; set fewer"
        )

    part = np.empty(len(train), np.int64)
    if units is None:
        by_class, *_ = _shuffle_by_class(torch.from_numpy(labels[train]), torch.Generator().manual_seed(0))
        part[by_class.numpy()] = np.arange(len(train)) % count
    elif by_time:
        part = unit * blocks // len(different) - 1
        split[train[part > number]] = ""
    else:
        from sklearn.model_selection import GroupKFold

        for place, (_, members) in enumerate(GroupKFold(count).split(train, groups=unit)):
            part[members] = place
    split[train[part == number]] = "test"


def _take_units(units: np.ndarray, count: int, *, shuffle: bool) -> np.ndarray:
    """Return the places of whole groups, at random, or of the latest times, that have about so many samples."""
    different, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    if len(different) < 2:
        raise UserError(
            "data.group_column, data.time_column: too few different values for all splits; set a fraction 0"
        )
    order = np.arange(len(different))[::-1]
    if shuffle:
        order = torch.randperm(len(different), generator=torch.Generator().manual_seed(0)).numpy()
    nearest = 1 + int(np.abs(sizes[order].cumsum() - count).argmin())
    return np.flatnonzero(np.isin(unit, order[: min(nearest, len(different) - 1)]))
