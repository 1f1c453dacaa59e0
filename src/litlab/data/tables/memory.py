"""Encoded rows in memory, from which whole batches are taken by their indices."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

_DEVICE_SHARE = 0.25  # of a GPU's free memory that the rows may take


class EncodedRows(Dataset[Any]):
    """Rows of one split; indexed by a tensor, it returns a batch.

    Args:
        numbers: float32 of shape (row, column).
        categories: int64 of shape (row, column).
        target: Classes, int64 of shape (row,), or numbers, float32 of shape (row, target); None in prediction.
    """

    def __init__(self, numbers: Tensor, categories: Tensor, target: Tensor | None = None) -> None:
        self.numbers = numbers
        self.categories = categories
        self.target = target

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Tensor) -> Any:
        """Take a batch, by the numbers of the rows, int64 of shape (batch,), or these plus a multiple of their number.

        Returns:
            A dict of numbers, float32 (batch, column), and categories, int64 (batch, column); and the target, but not
            in prediction.
        """
        index = (index % len(self)).to(self.device, non_blocking=True)
        inputs = {
            "numbers": self.numbers.index_select(0, index),
            "categories": self.categories.index_select(0, index),
        }
        return inputs if self.target is None else (inputs, self.target.index_select(0, index))

    def on_device(self, device: torch.device) -> "EncodedRows":
        """Return a copy on a GPU where it fits there, else these rows."""
        tensors = [tensor for tensor in (self.numbers, self.categories, self.target) if tensor is not None]
        size = sum(tensor.nbytes for tensor in tensors)
        if device.type != "cuda" or size > _DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            return self
        return EncodedRows(*(tensor.to(device) for tensor in tensors))
