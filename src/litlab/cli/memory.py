"""Refuses tensors that can't fit into memory, before they are made."""

import math
from typing import Any

import psutil
import torch
from torch.overrides import TorchFunctionMode

FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full)
GIB = 2**30


class WithinMemory(TorchFunctionMode):
    """While it is entered, tensors that come to more than the free memory, all together, raise instead of being made.

    Linux promises memory that it does not have and ends the process when it is used, without a word. So a network's
    size is looked at while it is built.

    Raises:
        MemoryError: On the first tensor that is too much.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = psutil.virtual_memory().available

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FACTORIES:
            self._count(args[:1] if func is torch.full else args, kwargs)
        return func(*args, **kwargs)

    def _count(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        size = kwargs.get("size", args[0] if args and isinstance(args[0], (list, tuple)) else args)
        if torch.device(kwargs.get("device") or torch.get_default_device()).type == "meta":
            return
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        needed = math.prod(size) * dtype.itemsize
        if needed > self.left:
            shape = " x ".join(map(str, size))
            raise MemoryError(
                f"a tensor of {shape} numbers ({needed / GIB:,.0f} GiB) is more than the free memory holds "
                f"({self.left / GIB:.1f} GiB): choose smaller sizes"
            )
        self.left -= needed
