"""What the machine has: how many processes a run may start, and tensors that can't fit into its memory."""

import math
import os
from typing import Any

import psutil
import torch
from torch.overrides import TorchFunctionMode

from litlab.cli.environment import knows_its_node
from litlab.errors import UserError
from litlab.util.host_memory import GIB

FEW = 8  # processes that may run anywhere: tests of several ranks run on small machines
FSDP1 = ("fsdp", "fsdp_cpu_offload", "FSDPStrategy")
FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full)


def check_processes(trainer: Any) -> None:
    """Check ``devices``, ``num_nodes`` and ``strategy`` before any process is started.

    Args:
        trainer: The parsed section.

    Raises:
        UserError: If devices is not a number or list of numbers, or asks for far more processes than the machine has
            cores or GPUs; if the strategy copies this process, or needs a GPU; if nothing says which of several nodes
            this is.
    """
    devices, strategy = trainer["devices"], trainer["strategy"]
    most = max(FEW, os.cpu_count() or 1, torch.cuda.device_count())
    if _count(devices) > most:
        raise UserError(
            f"trainer.devices: {devices} is one process each, and this machine has {os.cpu_count()} cores and "
            f"{torch.cuda.device_count()} GPUs; give at most {most}, or auto"
        )
    method = strategy if isinstance(strategy, str) else str((strategy.get("init_args") or {}).get("start_method"))
    if any(way in method for way in ("spawn", "fork", "notebook")):
        raise UserError(f"trainer.strategy: {method} would copy this process, which can't be copied; use ddp")
    name = strategy if isinstance(strategy, str) else strategy.get("class_path", "").rpartition(".")[-1]
    if name in FSDP1 and (trainer["accelerator"] in ("cpu", "mps") or not torch.cuda.is_available()):
        raise UserError(
            f"trainer.strategy: {name} needs GPUs; take fsdp2 (configs/with/fsdp2.yaml), which shards without them too"
        )
    if trainer["num_nodes"] > 1 and not trainer["plugins"] and not knows_its_node():
        raise UserError(
            f"trainer.num_nodes: {trainer['num_nodes']}, but nothing says which of them this is; start with srun or "
            "torchrun, or set MASTER_ADDR, MASTER_PORT and NODE_RANK on each node"
        )


def _count(devices: Any) -> int:
    """Return the number of devices, 0 where the machine decides it."""
    if devices in ("auto", "-1", -1):
        return 0
    text = str(devices).strip()
    if not isinstance(devices, list) and text.removeprefix("-").isdecimal():
        if int(text) < 1:
            raise UserError(f"trainer.devices: {devices} is not valid; it must be at least 1, or -1 for all")
        return int(text)
    numbers = [str(number).strip() for number in (text.strip(",").split(",") if isinstance(devices, str) else devices)]
    if not numbers or not all(number.isdecimal() for number in numbers):
        raise UserError(f"trainer.devices: {devices!r} is not valid; give a number, a list of device numbers, or auto")
    if len({int(number) for number in numbers}) < len(numbers):
        raise UserError(f"trainer.devices: {devices} has a device twice; delete one")
    return len(numbers)


class WithinMemory(TorchFunctionMode):
    """While it is active, tensors that need more than the free memory, all together, raise instead of being made.

    Linux promises memory that it does not have and kills the process when it is used, without a word. So the size of
    a network is checked while it is built.

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
        needed = math.prod(size) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
        if needed > self.left:
            raise MemoryError(
                f"a tensor of {' x '.join(map(str, size))} numbers ({needed / GIB:,.0f} GiB) is more than the free "
                f"memory holds ({self.left / GIB:.1f} GiB); choose smaller sizes"
            )
        self.left -= needed
