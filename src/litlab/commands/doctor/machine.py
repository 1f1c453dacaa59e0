"""Cores and memory, as far as a container lets this process have them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from litlab.commands.doctor.cgroups import core_quota, memory_room
from litlab.commands.doctor.line import GIB, MACHINE, OK, WARNING, Line, gib

SHARED = Path("/dev/shm")  # Linux: tensors go through it from loader workers to the training, and NCCL uses it
LEAST_FREE = 2 * GIB  # the reference experiments need less
LEAST_SHARED = GIB


def machine() -> Iterator[Line]:
    """Look at cores, memory and shared memory."""
    yield cores(core_quota())
    yield memory(memory_room())
    if SHARED.is_dir():
        yield shared_memory(shutil.disk_usage(SHARED))


def usable_cores(quota: float | None) -> float:
    """Return how many cores this process may keep busy.

    Args:
        quota: What a container's control group leaves it; None for all.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if quota is None else min(cores, quota)


def cores(quota: float | None) -> Line:
    """Describe the cores, and warn where others keep them busy.

    Args:
        quota: As of `usable_cores`.
    """
    usable, every, load = usable_cores(quota), os.cpu_count() or 1, os.getloadavg()[0]
    what = f"{every}"
    if usable < every:
        what = f"{usable:g} of {every}, by {'the affinity of this process' if usable != quota else 'its container'}"
    facts = {"cores": every, "usable": usable, "quota": quota, "load": round(load, 2)}
    if load > 1.5 * every:
        what = f"{what}; other programs are busy (load {load:.1f})"
        return Line(MACHINE, "cores", WARNING, what, "see which with top; all measured rates are too low", facts)
    return Line(MACHINE, "cores", OK, what, facts=facts)


def memory(room: tuple[int, int] | None) -> Line:
    """Describe the free memory, and warn where it is little.

    Args:
        room: Limit of the container and what is left of it, in bytes; None without a limit.
    """
    import psutil

    found = psutil.virtual_memory()
    total, free, whose = found.total, found.available, ""
    if room is not None and room[1] < free:
        (total, free), whose = room, " of the container's limit"
    facts = {"total_gib": gib(total), "free_gib": gib(free), "limit_gib": None if room is None else gib(room[0])}
    what = f"{gib(free)} of {gib(total)} GiB free{whose}"
    if free >= LEAST_FREE:
        return Line(MACHINE, "memory", OK, what, facts=facts)
    remedy = "end other programs, or raise the container's limit (docker run --memory)"
    return Line(MACHINE, "memory", WARNING, what, remedy, facts)


def shared_memory(usage: tuple[int, int, int]) -> Line:
    """Describe /dev/shm, and warn where it is little.

    Args:
        usage: Its total, used and free bytes.
    """
    total, _, free = usage
    facts = {"total_gib": gib(total), "free_gib": gib(free)}
    what = f"{gib(free)} of {gib(total)} GiB free in {SHARED}"
    if free >= LEAST_SHARED:
        return Line(MACHINE, "shared memory", OK, what, facts=facts)
    what += ": loader workers and NCCL may run out of it (bus error)"
    return Line(MACHINE, "shared memory", WARNING, what, "docker run --shm-size 8g, or --ipc host", facts)
