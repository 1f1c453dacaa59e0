"""Work on many tensors in few kernels, which leaves an accelerator busy instead of waiting for the next launch.

PyTorch documents its ``torch._foreach_*`` functions, under names with an underscore that are not exported.
"""
# pyright: reportPrivateImportUsage=false

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


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
