"""The tensors of a model, of which a process may have parts."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

from litlab.parallel.foreach import local_part


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers that this process has, with their names."""
    reshard(model)
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if not tensor.is_meta:  # those of other stages of a pipeline
            yield name, tensor


def reshard(model: nn.Module) -> None:
    """Divide what FSDP2 keeps whole after a forward pass: changes of whole weights get lost."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def copy_of(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy without a gradient, of another type if one is given; a part stays a part."""
    if not isinstance(tensor, DTensor):
        return tensor.detach().to(dtype or tensor.dtype, copy=True)
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
