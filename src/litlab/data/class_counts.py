"""How often classes come in training, and weights that make up for it."""

from typing import Any, Literal

import torch
from torch import Tensor

from litlab.errors import UserError

Balance = Literal["even", "sqrt"]


def training_weights(data: Any, balance: Balance) -> Tensor:
    """Return weights for the loss that make up for uneven classes, with a mean of 1 over the training samples.

    Args:
        data: The DataModule, set up.
        balance: "even": by one over the count of a class; "sqrt": by one over its square root.

    Returns:
        float32 of shape (classes,).

    Raises:
        UserError: The DataModule has no labels or balances classes itself, or a class has no training samples.
    """
    name = "model.class_weights"
    labels = data.labels("train") if hasattr(data, "labels") else None
    if labels is None:
        raise UserError(f"{name}: {type(data).__name__} has no labels() to count; leave {name} out")
    if getattr(data, "balance", None) is not None:
        raise UserError(f"{name}: data.balance evens out the classes already; leave one of the two out")
    counts = class_counts(labels.cpu(), data.class_names, name).double()
    weights = counts.pow(-0.5 if balance == "sqrt" else -1.0)
    return (weights * counts.sum() / (weights * counts).sum()).float()


def class_counts(labels: Tensor, class_names: list[str], setting: str) -> Tensor:
    """Count the samples of each class.

    Args:
        labels: Class of each sample, int64 of shape (samples,).
        class_names: Name of each class.
        setting: What asks, for messages.

    Returns:
        int64 of shape (classes,).

    Raises:
        UserError: There is a single class, or one has no samples.
    """
    counts = torch.bincount(labels, minlength=len(class_names))
    if len(counts) < 2:
        raise UserError(f"{setting}: the data has a single class; leave it out")
    if (counts == 0).any():
        name = class_names[int((counts == 0).nonzero()[0])]
        raise UserError(f"{setting}: class {name!r} has no training samples; add some, or leave {setting} out")
    return counts
