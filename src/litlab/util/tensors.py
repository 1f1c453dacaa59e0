"""Tensors that may be divided among processes (torch's DTensor), or sparse."""
# pyright: reportPrivateImportUsage=false

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def get_local(tensor: Tensor) -> Tensor:
    """Return what this rank has of a tensor, as a dense one that shares its memory."""
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    # values() refuses what is not coalesced
    return tensor._values() if tensor.is_sparse else tensor


def copy_tensor(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy without a gradient, of another type if one is given, and divided alike."""
    # `DTensor.from_local` would take it to the mesh's device
    copied = torch.empty_like(tensor.detach(), dtype=dtype)
    get_local(copied).copy_(get_local(tensor.detach()))
    return copied


def divide_like(target: Any, value: Any) -> Any:
    """Return what this process has of a whole tensor, divided as another one is and on its device.

    Nothing is communicated. A value stays as it is if it is divided already, or has another shape
    than the target, such as the steps that an optimizer counts.
    """
    is_whole = isinstance(value, Tensor) and not isinstance(value, DTensor)
    if not (is_whole and isinstance(target, DTensor) and target.shape == value.shape):
        return value
    mesh, placements = target.device_mesh, target.placements
    return distribute_tensor(value, mesh, placements, src_data_rank=None).to(target.device)


def compute_norms(tensors: list[Tensor]) -> Tensor:
    """Return the L2 norm of each tensor, shape (tensor,), in float32, or float64 if one of them is.

    ``torch.nn.utils.get_total_norm`` (2.15) overflows in float16.
    """
    if not tensors:
        return torch.zeros(0)
    is_double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.stack(
        torch._foreach_norm(tensors, 2, torch.float64 if is_double else torch.float32)
    )
