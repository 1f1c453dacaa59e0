"""What callbacks ask of a data module or a model, as protocols: whatever has the attributes will do."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, get_type_hints, runtime_checkable

import numpy as np
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from litlab.errors import UserError


@runtime_checkable
class ClassNames(Protocol):
    """Data with classes."""

    class_names: Sequence[str]
    """Name of each class, in the order of the labels."""


@runtime_checkable
class Labelled(Protocol):
    """Data whose labels can be counted."""

    sizes: dict[str, int]
    """Number of samples in each split, after ``setup``."""
    labels: Callable[[str], Tensor | None]
    """The class of each sample of a split, int64 (samples,); None where that is not known."""


@runtime_checkable
class ImageFacts(Protocol):
    """Images that were normalised."""

    mean: Sequence[float]
    """Mean of each channel, of pixels from 0 to 1."""
    std: Sequence[float]
    """Standard deviation of each channel, of pixels from 0 to 1."""


@runtime_checkable
class TextFacts(Protocol):
    """Texts that can be looked up."""

    sample_index: Callable[[str, int], Tensor]
    """Numbers of the samples in a batch of this rank, int64 (batch,), by split and number of the batch."""
    text: Callable[[str, int], str]
    """The text of a sample, by split and number."""


@runtime_checkable
class SeriesFacts(Protocol):
    """Scaled windows of a time series."""

    target_names: Sequence[str]
    """Name of each channel."""
    times: np.ndarray
    """Times of all rows, datetime64."""
    mean: Tensor
    """Mean of each channel, (channel,)."""
    scale: Tensor
    """What a channel was divided by, (channel,): value = scaled value * scale + mean."""
    naive_error: Tensor
    """The denominator of MASE, (channel,)."""


@runtime_checkable
class HasBaselines(Protocol):
    """Data that knows what simple methods achieve."""

    baselines: Callable[[], dict[str, dict[str, float]]]
    """Metrics on the test split of each baseline, by its name and theirs: ``{"seasonal naive": {"test/mse": 0.6}}``."""


@runtime_checkable
class MaybeGenerated(Protocol):
    """Data that may have been generated, where the real one was missing."""

    generated: bool
    """Whether it was."""


@runtime_checkable
class Described(Protocol):
    """Data that can be described in a line."""

    description: str
    """What it is and how much of it there is."""


@runtime_checkable
class HasCoverage(Protocol):
    """A model whose forecasts have intervals."""

    coverage: float
    """Share of the truth that they are to cover, from 0 to 1."""


@runtime_checkable
class HasBatchLoss(Protocol):
    """A model whose training loss can be computed beside the training."""

    batch_loss: Callable[[Any], Tensor]
    """The mean training loss over the samples of a batch, shape (); logs nothing and changes nothing but buffers."""


Facts = TypeVar("Facts")


def facts(callback: Callback, trainer: Trainer, wanted: type[Facts]) -> Facts:
    """Return the data module, which has all that a callback needs of it.

    Args:
        callback: The callback that needs it.
        trainer: The trainer that has the data module.
        wanted: The protocol that it needs.

    Raises:
        UserError: The data module lacks something.
    """
    data = getattr(trainer, "datamodule", None)
    for name in get_type_hints(wanted):
        if not hasattr(data, name):
            who = type(callback).__name__
            raise UserError(
                f"{who}: {type(data).__name__} has no '{name}'; add it to the data module, "
                f"or remove {who} from trainer.callbacks"
            )
    return data  # pyright: ignore[reportReturnType]


def class_names(trainer: Trainer, classes: int) -> list[str]:
    """Return the data module's ``class_names``, or the numbers of the classes where it has none.

    Args:
        trainer: The trainer that has the data module.
        classes: Number of classes.
    """
    data = getattr(trainer, "datamodule", None)
    names = data.class_names if isinstance(data, ClassNames) else None
    return list(names) if names else [str(number) for number in range(classes)]
