"""Memory of this process, and of the devices it computes on."""

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

GIB = 2**30
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def peak_host_gib() -> float:
    """Return the most memory that this process has had resident, in GiB."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


def peak_gib(trainer: "Trainer") -> float:
    """Return the most memory a run took, in GiB: as a callback that resets the peaks measured it, else as it is."""
    import torch

    callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    peaks = [getattr(callback, "peak_gib", None) for callback in callbacks]
    known = [peak for peak in peaks if peak is not None]
    if known:
        return max(known)
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / GIB
    if device.type == "mps":
        return torch.mps.driver_allocated_memory() / GIB
    return peak_host_gib()


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, for the next tensor.

    By default glibc maps every large tensor anew and gives it back to the system when it is freed, so that each step
    of a training on the CPU clears and maps the memory of all its activations again: with the shipped CNN 30,000 to
    90,000 page faults a step, 7 to 10 % of its CPU time. See mallopt(3). The process keeps what it needed at its
    highest, and up to seven blocks more of each size, as glibc's thread cache holds the remainders between them.

    Returns:
        Whether it does from now on; not on macOS or with musl, where nothing is changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
