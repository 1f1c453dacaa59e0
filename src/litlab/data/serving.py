"""What a checkpoint knows of its data, and what stands between raw inputs and a model that is
deployed.
"""

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from litlab.errors import UserError

BATCH, TIME = "batch", "time"  # names of axes whose size is free


@dataclass(frozen=True)
class Metadata:
    """What is known of a data set; each kind of data has its own subclass."""

    fixed: ClassVar[tuple[str, ...]] = ()  # what a trained model depends on

    def state_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint keeps it: plain values by their names."""
        return dict(vars(self))

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Self:
        """Return the record of a checkpoint."""
        return cls(**state)

    def check_same(self, here: Any) -> None:
        """Refuse data that a model with this metadata was not trained for.

        Args:
            here: The `Metadata` of the data.

        Raises:
            UserError: They differ in one of `fixed`.
        """
        for name in self.fixed:
            trained, found = getattr(self, name), getattr(here, name)
            if trained != found:
                # Of long lists the first parts
                mine, theirs = reprlib.repr(trained), reprlib.repr(found)
                raise UserError(
                    f"data: the checkpoint was trained with {name} {mine}, here it is {theirs}; "
                    "use data and settings like those of its run"
                )


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a deployed model.

    Args:
        name: Its name.
        dtype: Type of its values, as numpy calls it.
        shape: Size of each axis; a name where any size is allowed.
        what: What it is, in a few words.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    what: str

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        return {**asdict(self), "shape": list(self.shape)}


class Serving(nn.Module, ABC):
    """Turns raw inputs into a model's, and its predictions into answers, as part of an exported
    graph.

    A DataModule's ``serving()`` returns one, made from the metadata of its checkpoint. What
    `encode` and `decode` do is traced by torch.export, so they compute with tensors alone: a branch
    may not depend on a value or a free size.

    Args:
        inputs: The raw inputs, in the order in which `encode` takes them. The first axis of each is
            the batch.
        outputs: The answers, in the order in which `decode` returns them.
        most: Largest size of each named axis besides the batch.
    """

    kind: ClassVar[str]  # images, texts, series or rows

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        most: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.most = dict(most or {})

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        return [spec.name for spec in self.inputs]

    # ---- inside of the graph

    @abstractmethod
    def encode(self, *raw: Tensor) -> Any:
        """Return what the model's ``predict_step`` takes, from the raw inputs."""

    def decode(self, predicted: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs, from what ``predict_step`` returned; here that itself, the only
        one.
        """
        return (predicted,)

    # ---- between the graph and the rest of the DataModule

    @abstractmethod
    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        """Return the raw inputs of a batch as the DataModule's ``samples`` or ``open_input`` gave
        it.
        """

    def predicted(self, outputs: Sequence[Tensor]) -> Tensor:
        """Return what ``predict_step`` would have returned, from the outputs: the inverse of
        `decode`.
        """
        return outputs[0]

    def target(self, batch: Any) -> Any:
        """Return what a test compares the predictions of a batch with; here the second part of the
        batch.
        """
        return batch[1]

    # ---- what a manifest says

    def facts(self) -> dict[str, Any]:
        """Return what a caller has to know to use the model, such as ``class_names``: plain
        values.
        """
        return {}

    def files(self) -> dict[str, str]:
        """Return text files that belong to the model by their names, such as ``tokenizer.json``."""
        return {}

    def unit(self) -> Tensor:
        """Return what one unit of an output is for a comparison, such as a standard deviation; 1
        for a probability.
        """
        return torch.ones(())

    @abstractmethod
    def example(self) -> tuple[Tensor, ...]:
        """Return raw inputs that are made up, two of a batch: they may leave the house, the data
        may not.
        """
