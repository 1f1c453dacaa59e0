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
    if not (number.isdecimal() and count.isdecimal() and 0 <= int(number) < int(count) > 1):
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
    units = groups if groups is not None else times
    total = int((split == "train").sum())

    if fold is not None:
        split[split == "test"] = ""
        _set_fold(split, *read_fold(fold), labels, groups, times)
    wanted = [("test", test_fraction), ("val", val_fraction)]
    wanted = [(name, fraction) for name, fraction in wanted if fraction and name not in split]
    for seed, (name, fraction) in enumerate(wanted):
        train = np.flatnonzero(split == "train")
        count = max(1, round(fraction * total))
        if units is None:
            classes = np.zeros(len(train), np.int64) if labels is None else labels[train]
            taken = draw_by_class(torch.from_numpy(classes), count, seed)[1].numpy()
        else:
            taken = _take_units(units[train], count, shuffle=groups is not None)
        split[train[taken]] = name
    return split


def draw_by_class(labels: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Take ``count`` samples at random, from each class in proportion to its size.

    The last sample of a class is never taken, so that no class disappears from what is left.

    Args:
        labels: Class of each sample, int64 of shape (samples,).
        count: How many to take. Fewer are taken where the classes run out.
        seed: Seed of the draw.

    Returns:
        Indices of the samples left and of the samples taken, both int64 and ascending.
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
    taken = by_class[torch.argsort(height, stable=True)[:count]]
    left = torch.ones(len(labels), dtype=torch.bool)
    left[taken] = False
    return left.nonzero().flatten(), taken.sort().values


def _shuffle_by_class(labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return samples at random class after class, the place of each within its class, and the sizes of the classes."""
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    sizes = torch.bincount(labels)
    rank = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[labels[by_class]]
    return by_class, rank, sizes


def _set_fold(
    split: np.ndarray,
    number: int,
    count: int,
    labels: np.ndarray | None,
    groups: np.ndarray | None,
    times: np.ndarray | None,
) -> None:
    """Mark one fold of the training samples as test, and what comes after it in time as left out."""
    train = np.flatnonzero(split == "train")
    units = groups if groups is not None else times
    least = count + (times is not None)
    different = len(train) if units is None else len(np.unique(units[train]))
    if different < least:
        raise UserError(f"data.fold: {different} samples, groups or times are too few for {count} folds; set fewer")

    part = np.empty(len(train), np.int64)
    if groups is not None:
        from sklearn.model_selection import GroupKFold

        for place, (_, members) in enumerate(GroupKFold(count).split(train, groups=groups[train])):
            part[members] = place
    elif times is not None:
        _, unit, sizes = np.unique(times[train], return_inverse=True, return_counts=True)
        before = (sizes.cumsum() - sizes)[unit]  # rows of earlier times
        part = before * (count + 1) // len(train) - 1
    else:
        classes = torch.zeros(len(train), dtype=torch.int64) if labels is None else torch.from_numpy(labels[train])
        by_class, *_ = _shuffle_by_class(classes, torch.Generator().manual_seed(0))
        part[by_class.numpy()] = np.arange(len(train)) % count
    split[train[part == number]] = "test"
    if times is not None:
        split[train[part > number]] = ""


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
