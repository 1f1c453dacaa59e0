"""Tensors that may be divided among processes (torch's DTensor), or sparse."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import get_total_norm


def get_local(tensor: Tensor) -> Tensor:
    """Return what this rank has of a tensor: a dense one, which shares its memory unless that is
    sparse.
    """
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    return tensor.coalesce().values() if tensor.is_sparse else tensor


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


def compute_norm(tensors: list[Tensor]) -> Tensor:
    """Return the L2 norm of all values of some tensors, shape ().

    ``torch.nn.utils.get_total_norm`` (2.15) overflows in float16.
    """
    return get_total_norm(
        [tensor.float() if tensor.dtype == torch.float16 else tensor for tensor in tensors]
    )
