"""Batches that come with the numbers of their samples, for models that treat each sample in a way of its own."""

from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import Dataset


class NumberedBatch(NamedTuple):
    """A batch, and the numbers of its samples within the split, int64 of shape (batch,)."""

    samples: Any
    numbers: Tensor


class Numbered(Dataset[NumberedBatch]):
    """A data set of whole batches with their numbers.

    Args:
        samples: Returns a batch for an index tensor.
    """

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the samples, such as the device where they lie."""
        if name == "samples":  # not there yet, as in a worker that unpickles this
            raise AttributeError(name)
        return getattr(self.samples, name)

    def __getitem__(self, index: Tensor) -> NumberedBatch:
        """Return a batch, by the numbers of the samples, int64 of shape (batch,).

        With `balance`, which draws some samples twice, each has one number all the same.
        """
        return NumberedBatch(self.samples[index], index % len(self))
