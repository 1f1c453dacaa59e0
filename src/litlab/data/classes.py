"""Classes: their order, how often they come in training, and what makes up for uneven counts."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.errors import UserError

Balance = Literal["even", "sqrt"]
_POWERS = {"even": -1.0, "sqrt": -0.5}  # of the counts


def sort_classes(labels: Iterable[str]) -> list[str]:
    """Return the different labels in order; as numbers if all are, so that class 10 comes after class 9."""
    names = set(labels)
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


def warn_of_like_classes(names: Iterable[str], where: object) -> None:
    """Warn of classes that differ only in upper and lower case or spaces: probably one, written in two ways."""
    counts = Counter(" ".join(name.split()).casefold() for name in names)
    alike = [name for name, count in counts.items() if count > 1]
    if alike:
        rank_zero_info(f"warning: {where}: classes differ only in how they are written: {', '.join(alike[:5])}")


def count_classes(labels: Tensor, class_names: list[str], setting: str) -> Tensor:
    """Count the samples of each class, int64 of shape (classes,).

    Args:
        labels: Class of each sample, int64 of shape (samples,).
        class_names: Name of each class.
        setting: What asks, for messages.

    Raises:
        UserError: A class has no samples.
    """
    counts = torch.bincount(labels.cpu(), minlength=len(class_names))
    if not counts.all():
        name = class_names[int(counts.argmin())]
        raise UserError(f"{setting}: class {name!r} has no training samples; add some, or leave {setting} out")
    return counts


def weigh_classes(data: Any, balance: Balance) -> Tensor:
    """Return weights for the loss that make up for uneven classes, with a mean of 1 over the training samples.

    Args:
        data: The DataModule, set up.
        balance: "even": by one over the count of a class; "sqrt": by one over its square root.

    Returns:
        float32 of shape (classes,).

    Raises:
        UserError: The DataModule has no labels or balances classes itself, or a class has no training samples.
    """
    setting = "model.class_weights"
    labels = data.labels("train") if hasattr(data, "labels") else None
    if labels is None:
        raise UserError(f"{setting}: {type(data).__name__} has no labels() to count; leave {setting} out")
    if getattr(data, "balance", None) is not None:
        raise UserError(f"{setting}: data.balance evens out the classes already; leave one of the two out")
    counts = count_classes(labels, data.class_names, setting).double()
    weights = counts.pow(_POWERS[balance])
    return (weights * counts.sum() / (weights * counts).sum()).float()


class BalancedDraw:
    """Draws the samples of an epoch such that classes come evenly, or by the square root of their counts.

    An epoch keeps its length, and each class has a fixed share of it. Within a class each sample comes n times or
    n + 1 times; who gets the additional draw is chosen anew in each epoch.

    Args:
        labels: Class of each training sample, int64 of shape (samples,).
        balance: "even": as many draws for each class; "sqrt": by the square root of its count.
        class_names: Name of each class.

    Raises:
        UserError: A class has no training samples.
    """

    def __init__(self, labels: Tensor, balance: Balance, class_names: list[str]) -> None:
        counts = count_classes(labels, class_names, "data.balance")
        self.size = len(labels)
        self.members = labels.cpu().argsort(stable=True).split(counts.tolist())
        shares = counts.double().pow(1 + _POWERS[balance]).cumsum(0)
        ends = (shares / shares[-1] * self.size).round().long()
        self.draws = ends.diff(prepend=ends.new_zeros(1))
        rare, frequent = int(counts.argmin()), int(counts.argmax())
        self.description = f"data.balance: {balance}: in each epoch " + ", ".join(
            f"class {class_names[place]!r} ({counts[place]:,}) is drawn {self.draws[place]:,} times"
            for place in (rare, frequent)
        )

    def __call__(self, generator: torch.Generator) -> Tensor:
        """Return the samples of an epoch in random order, int64 of shape (samples,).

        The second draw of a sample is its number plus the number of all samples, the third plus twice that, and so on:
        the sample is the remainder, and augmentation can draw by the whole number.
        """
        drawn = []
        for members, count in zip(self.members, self.draws.tolist(), strict=True):
            rounds, rest = divmod(count, len(members))
            drawn += [members + number * self.size for number in range(rounds)]
            chosen = torch.randperm(len(members), generator=generator)[:rest]
            drawn.append(members[chosen] + rounds * self.size)
        together = torch.cat(drawn)
        return together[torch.randperm(len(together), generator=generator)]
