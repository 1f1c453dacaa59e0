"""Clipping of gradients that are divided among processes.

torch's own functions (2.15) take no mix of tensors and DTensors, nor DTensors of several meshes.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from litlab.parallel.foreach import local_part, norms_of


@torch.no_grad()
def clip_norm(parameters: Iterable[Tensor], most: float, device: torch.device) -> Tensor:
    """Scale gradients so that their norm over all processes is at most a number, and return that norm, shape ().

    Args:
        parameters: Those of this process, in the same order on all; what is not a DTensor is the same on all.
        most: The norm that is allowed.
        device: Where the processes communicate; with CPU offload the gradients are elsewhere.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    parts = [local_part(gradient) for gradient in gradients]
    total = torch.zeros((), device=device)
    if parts:  # a process may have none, but all have to take part in the sum
        shares = torch.tensor([1 / _holders(gradient) for gradient in gradients]).to(device, non_blocking=True)
        total += norms_of(parts).square().to(device) @ shares
    torch.distributed.all_reduce(total)
    norm = total.sqrt()
    if parts:
        factor = (most / (norm + 1e-6)).clamp(max=1.0).to(parts[0].device)
        torch._foreach_mul_(parts, factor)  # pyright: ignore[reportPrivateImportUsage]
    return norm


@torch.no_grad()
def clip_value(parameters: Iterable[Tensor], most: float) -> None:
    """Bring each number of gradients between ``-most`` and ``most``."""
    for parameter in parameters:
        if parameter.grad is not None:
            local_part(parameter.grad).clamp_(-most, most)


def _holders(gradient: Tensor) -> int:
    """Return how many processes hold the same part of a gradient."""
    everyone = torch.distributed.get_world_size()
    if not isinstance(gradient, DTensor):
        return everyone
    mesh = gradient.device_mesh
    whole = [size for size, place in zip(mesh.shape, gradient.placements, strict=True) if isinstance(place, Replicate)]
    return everyone // mesh.size() * math.prod(whole)
