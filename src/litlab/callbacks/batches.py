"""What a batch holds, however it is nested."""

from typing import Any

from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor


def tensors(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch, itself one or a tuple, list or dict that holds some, as deep as need be."""
    leaves: list[Tensor] = []
    apply_to_collection(batch, Tensor, leaves.append)
    return leaves


def describe(batch: Any) -> str:
    """Return types and shapes of the tensors of a batch."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}" for tensor in tensors(batch))


def is_finite(batch: Any) -> bool:
    """Return whether no tensor of a batch holds a NaN or infinity."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors(batch))


def count_samples(batch: Any) -> int:
    """Return the number of samples in a batch: the size of the first dimension of its first tensor, or 0."""
    sizes = [len(tensor) if tensor.ndim else 0 for tensor in tensors(batch)]
    return sizes[0] if sizes else 0
