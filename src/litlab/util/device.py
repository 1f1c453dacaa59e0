"""What differs between devices, and how much memory is taken."""

import ctypes
import re
import sys
from functools import lru_cache
from pathlib import Path

import torch
from lightning.pytorch import Trainer

GIB = 2**30
# What allocators say: torch's on the CPU, on Apple's MPS, and CUDA's libraries.
SIGNS = re.compile(
    r"can't allocate memory|not enough memory|out of memory|CUBLAS_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what is queued on it."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


# Arithmetic


@lru_cache
def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether a device computes in bfloat16 at least as fast as in float32.

    CUDA GPUs do from Ampere on, Apple's from macOS 14 on, and CPUs with AVX512-BF16 or AMX (x86) or
    BF16 (ARM). Others emulate it: many times slower on a CPU.
    """
    if device.type == "cuda":
        # Not torch.cuda.is_bf16_supported, which asks the current device: to make another one it
        # costs memory there.
        return torch.cuda.is_available() and (
            bool(torch.version.hip) or compute_capability(device) >= 8
        )
    if device.type == "mps":
        return torch.backends.mps.is_available() and torch.backends.mps.is_macos_or_newer(14, 0)
    if device.type != "cpu":
        return False
    if hasattr(torch.cpu, "get_capabilities"):
        features = {name for name, is_there in torch.cpu.get_capabilities().items() if is_there}
    else:  # torch 2.11
        listed = Path("/proc/cpuinfo")  # of Linux, with the same names
        features = set(listed.read_text().split()) if listed.exists() else set()
    return not features.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))


def has_tensor_cores(device: torch.device) -> bool:
    """Return whether a GPU multiplies matrices of float16 far faster than of float32: NVIDIA's do
    from Volta on.
    """
    return device.type == "cuda" and torch.cuda.is_available() and compute_capability(device) >= 7


def compute_capability(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).major


# Memory


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that the memory of the device or the host is used up."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and SIGNS.search(str(error)) is not None


def peak_host_gib() -> float:
    """Return the most memory that this process has had resident, in GiB."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


def peak_gib(trainer: Trainer) -> float:
    """Return the most memory a run took, in GiB: as a callback that resets the peaks measured it,
    else as it is.
    """
    callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    peaks = [getattr(callback, "peak_gib", None) for callback in callbacks]
    measured = [peak for peak in peaks if peak is not None]
    if measured:
        return max(measured)
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / GIB
    if device.type == "mps":
        return torch.mps.driver_allocated_memory() / GIB
    return peak_host_gib()


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, for the next tensor, and return whether it
    does from now on.

    By default glibc maps every large tensor anew and gives it back to the system when it is freed,
    so that each step of a training on the CPU clears and maps the memory of all its activations
    again: with the shipped CNN 30,000 to 90,000 page faults a step, 7 to 10 % of its CPU time. See
    mallopt(3). The process keeps what it needed at its highest, and up to seven blocks more of each
    size, as glibc's thread cache holds the remainders between them. On macOS or with musl nothing
    is changed.
    """
    mallopt = (
        getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    )
    return mallopt is not None and bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
