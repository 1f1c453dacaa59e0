"""Reproducible splits that keep the mix of classes."""

import torch
from torch import Tensor


def stratified(labels: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
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
    shuffled = torch.randperm(len(labels), generator=generator)
    by_class = shuffled[torch.argsort(labels[shuffled], stable=True)]
    sizes = torch.bincount(labels)
    rank = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[labels[by_class]]  # place within its class
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


def partition(
    labels: dict[str, Tensor], val_fraction: float, test_fraction: float, seed: int
) -> dict[str, tuple[str, Tensor]]:
    """Say which samples make up train, val and test.

    Args:
        labels: For each split that is stored the class of each sample, int64 of shape (samples,).
        val_fraction: Share of the stored training samples for validation, where no "val" is stored.
        test_fraction: Share of the stored training samples for the test, where no "test" is stored.
        seed: Seed of the draws.

    Returns:
        For each split the stored split that its samples are in, and their indices there, int64 and ascending.
    """
    rows = {split: (split, torch.arange(len(own))) for split, own in labels.items()}
    train, left = labels["train"], rows["train"][1]
    wanted = [("test", test_fraction), ("val", val_fraction)]
    wanted = [(split, fraction) for split, fraction in wanted if fraction and split not in labels]
    for number, (split, fraction) in enumerate(wanted):
        keep, taken = stratified(train[left], max(1, round(fraction * len(train))), seed + number)
        if len(taken):  # there are none to spare where each class has but one
            rows[split] = "train", left[taken]
        left = left[keep]
    rows["train"] = "train", left
    return {split: rows[split] for split in ("train", "val", "test") if split in rows}
