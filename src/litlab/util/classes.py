"""Classes: their order, how often they come in training, and what makes up for uneven counts."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from litlab.errors import UserError

Balance = Literal["even", "sqrt"]
_POWERS = {"even": -1.0, "sqrt": -0.5}  # of the counts


def sort_classes(labels: Iterable[str]) -> list[str]:
    """Return the different labels in order; as numbers if all are, so that class 10 comes after
    class 9.
    """
    names = set(labels)
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


def weigh_classes(labels: Tensor, class_names: list[str], balance: Balance, setting: str) -> Tensor:
    """Return weights that make up for uneven classes, with a mean of 1 over the samples.

    Args:
        labels: Class of each training sample, int64 of shape (samples,).
        class_names: Name of each class.
        balance: "even": by one over the count of a class; "sqrt": by one over its square root.
        setting: What asks, for messages.

    Returns:
        float64 of shape (classes,).

    Raises:
        UserError: A class has no samples.
    """
    counts = torch.bincount(labels.cpu(), minlength=len(class_names))
    if not counts.all():
        name = class_names[int(counts.argmin())]
        raise UserError(
            f"{setting}: class {name!r} has no training samples; add some, or leave {setting} out"
        )
    weights = counts.double().pow(_POWERS[balance])
    return weights * len(labels) / (weights * counts).sum()


def weigh_for_loss(data: Any, balance: Balance) -> Tensor:
    """Return weights of the classes of a DataModule for the loss, float32 of shape (classes,), as
    of `weigh_classes`.

    Raises:
        UserError: The DataModule has no labels, or balances classes itself.
    """
    setting = "model.class_weights"
    labels = data.labels("train") if hasattr(data, "labels") else None
    if labels is None:
        raise UserError(
            f"{setting}: {type(data).__name__} has no labels() to count; leave {setting} out"
        )
    if getattr(data, "balance", None) is not None:
        raise UserError(
            f"{setting}: data.balance already evens out the classes; leave one of the two out"
        )
    return weigh_classes(labels, data.class_names, balance, setting).float()


def draw_samples(weights: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the samples of an epoch with replacement, as many as there are.

    Args:
        weights: Of each sample, shape (samples,).
        generator: Where random numbers come from.

    Returns:
        int64 of shape (samples,): numbers of samples, each plus another multiple of how many there
        are, so that augmentation can draw by it.
    """
    size = len(weights)
    return weights.multinomial(size, replacement=True, generator=generator) + size * torch.arange(
        size
    )
