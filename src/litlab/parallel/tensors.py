"""The tensors of a model, of which a process may have parts, and work on many of them in few kernels.

That leaves an accelerator busy instead of waiting for the next launch. PyTorch documents its ``torch._foreach_*``
functions, under names with an underscore that are not exported.
"""
# pyright: reportPrivateImportUsage=false

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor as a dense one that shares its memory."""
    if isinstance(tensor, DTensor):
        tensor = tensor.to_local()
    return tensor._values() if tensor.is_sparse else tensor  # values() refuses what is not coalesced


def norms_of(tensors: list[Tensor]) -> Tensor:
    """Return the L2 norm of each tensor, shape (tensor,), in float32, as float16 would overflow, or float64."""
    is_double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.stack(torch._foreach_norm(tensors, 2, torch.float64 if is_double else torch.float32))


def copy_all(to: list[Tensor], source: list[Tensor]) -> None:
    """Copy tensors into others of the same shapes."""
    if to:
        torch._foreach_copy_(to, source)


def reshard(model: nn.Module) -> None:
    """Divide what FSDP2 keeps whole after a forward pass: changes of whole weights get lost."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def copy_of(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy without a gradient, of another type if one is given; a part stays a part."""
    copied = torch.empty_like(tensor.detach(), dtype=dtype)  # `DTensor.from_local` would take it to the mesh's device
    local_part(copied).copy_(local_part(tensor.detach()))
    return copied


def divided_like(target: Any, value: Any) -> Any:
    """Return this process's part of a whole tensor, divided as another one is and on its device.

    Of a tensor that another stage of a pipeline has, that is an empty one. What is a part, or has another shape, stays
    as it is. Nothing is communicated.
    """
    if isinstance(value, DTensor) or getattr(target, "shape", None) != getattr(value, "shape", None):
        return value
    if isinstance(target, DTensor):
        return distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None).to(target.device)
    return value.to("meta") if isinstance(target, Tensor) and target.is_meta else value
