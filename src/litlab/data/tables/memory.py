"""Encoded rows in memory, from which whole batches are taken by their indices."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset


class EncodedRows(TensorDataset):
    """Rows of one split: numbers, categories and, but in prediction, targets; indexed by a tensor, it returns a batch.

    A batch is a dict of ``numbers``, float32 (batch, column), and ``categories``, int64 (batch, column); and the
    target. An index may be that of a row plus a multiple of their number.
    """

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    def __getitem__(self, index: Tensor) -> Any:
        rows = (index % len(self)).to(self.device, non_blocking=True)
        numbers, categories, *target = (tensor.index_select(0, rows) for tensor in self.tensors)
        inputs = {"numbers": numbers, "categories": categories}
        return (inputs, *target) if target else inputs
