"""What a batch holds, however it is nested."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def describe(batch: Any) -> str:
    """Names, types and shapes of its tensors.

    Args:
        batch: A tensor, or a tuple, list or dict that holds some, as deep as need be.
    """
    found = ((name, str(tensor.dtype).removeprefix("torch."), tensor) for name, tensor in tensors(batch))
    return ", ".join(f"{name} {kind} {tuple(tensor.shape)}".strip() for name, kind, tensor in found)


def not_finite(batch: Any) -> str:
    """Names of its tensors that hold a NaN or infinity, or their number in the batch, from 0; empty where none does.

    Args:
        batch: As of `describe`.
    """
    return ", ".join(
        name or f"tensor {number}"
        for number, (name, tensor) in enumerate(tensors(batch))
        if tensor.is_floating_point() and not tensor.isfinite().all()
    )


def tensors(batch: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield its tensors, each with its key in the mapping that holds it, or an empty name."""
    if isinstance(batch, Tensor):
        yield name, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from tensors(value, str(key))
    elif isinstance(batch, (tuple, list)):
        for value in batch:
            yield from tensors(value, name)
