"""How many processes a run may start."""

import os
from typing import Any

import torch

from litlab.cli.environment import knows_its_node
from litlab.errors import UserError

FEW = 8  # that many are started anywhere: tests of several ranks run on small machines


def check_processes(trainer: Any) -> None:
    """Checks ``devices``, ``num_nodes`` and ``strategy`` before any process is started.

    Args:
        trainer: The parsed section.

    Raises:
        UserError: If devices is not a number or list of numbers, asks for far more processes than the machine has cores
            or GPUs, the strategy copies this process, or nothing says which of several nodes this is.
    """
    devices, nodes, strategy = trainer["devices"], trainer["num_nodes"], trainer["strategy"]
    wanted = _wanted(devices)
    most = max(FEW, os.cpu_count() or 1, torch.cuda.device_count())
    if wanted > most:
        raise UserError(
            f"trainer.devices is {devices}: that is one process for each, and this machine has {os.cpu_count()} cores "
            f"and {torch.cuda.device_count()} GPUs: give {most} or less, or auto."
        )
    method = strategy if isinstance(strategy, str) else str((strategy.get("init_args") or {}).get("start_method"))
    if any(way in method for way in ("spawn", "fork", "notebook")):
        raise UserError(f"trainer.strategy is {method}: this command can't be copied to new processes; use ddp.")
    if nodes > 1 and not trainer["plugins"] and not knows_its_node():
        raise UserError(
            f"trainer.num_nodes is {nodes}, but nothing says which of them this is: start with srun or torchrun, or "
            "set MASTER_ADDR, MASTER_PORT and NODE_RANK on each node."
        )


def _wanted(devices: Any) -> int:
    """The number of devices, 0 where the machine decides it."""
    if devices in ("auto", "-1", -1):
        return 0
    if isinstance(devices, str) and devices.strip().removeprefix("-").isdecimal():
        devices = int(devices)
    if isinstance(devices, int):
        if devices < 1:
            raise UserError(f"trainer.devices is {devices}: it must be 1 or more, or -1 for all.")
        return devices
    numbers = devices.strip().strip(",").split(",") if isinstance(devices, str) else devices
    if not numbers or not all(str(number).strip().isdecimal() for number in numbers):
        raise UserError(f"trainer.devices is {devices!r}: give a number, a list of device numbers, or auto.")
    if len({int(number) for number in numbers}) < len(numbers):
        raise UserError(f"trainer.devices is {devices}: it names a device twice.")
    return len(numbers)
