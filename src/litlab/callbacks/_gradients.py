"""What a callback does with gradients and weights without waiting for the device."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


def local_part(gradient: Tensor | None) -> Tensor:
    """Return this rank's part of a gradient, as a dense tensor that shares its memory."""
    assert gradient is not None
    if type(gradient) is Tensor and gradient.layout is torch.strided:
        return gradient
    if isinstance(gradient, DTensor):
        gradient = gradient.to_local()
    return gradient._values() if gradient.is_sparse else gradient


def zero_unless(good: Tensor, tensors: list[Tensor]) -> None:
    """Set tensors to zero in place where the flag of shape () is false, without reading it.

    As numbers NaN times 0 is NaN; as integers of the same bits it is 0. All tensors take one kernel, torch.where would
    take one for each.
    """
    for size, integer in INTEGERS.items():
        bits = [tensor.view(integer) for tensor in tensors if tensor.element_size() == size]
        if bits:
            torch._foreach_mul_(bits, good.to(integer))  # pyright: ignore[reportPrivateImportUsage]


def copy_all(to: list[Tensor], source: list[Tensor]) -> None:
    """Copy tensors into others of the same shapes, in one kernel."""
    if to:
        torch._foreach_copy_(to, source)  # pyright: ignore[reportPrivateImportUsage]
