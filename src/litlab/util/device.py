"""What differs between devices."""

import re
from functools import lru_cache

import torch

# What allocators say: torch's on the CPU, on Apple's MPS, and CUDA's libraries.
SIGNS = re.compile(r"can't allocate memory|not enough memory|out of memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)


def synchronize(device: torch.device) -> None:
    """Wait until a device has done what is queued on it."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@lru_cache
def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16 at least as fast as in float32.

    CUDA GPUs do from Ampere on, Apple's from macOS 14 on, and CPUs with AVX512-BF16 or AMX (x86) or BF16 (ARM). Others
    emulate it: many times slower on a CPU.

    Args:
        device: Where the tensors lie.

    Returns:
        False also for devices that nothing is known of.
    """
    if device.type == "cuda":
        # Not torch.cuda.is_bf16_supported, which asks the current device: to make another one it costs memory there.
        return torch.cuda.is_available() and (bool(torch.version.hip) or _capability(device) >= 8)
    if device.type == "mps":
        return torch.backends.mps.is_available() and torch.backends.mps.is_macos_or_newer(14, 0)
    if device.type == "cpu":
        if hasattr(torch.cpu, "get_capabilities"):
            features = torch.cpu.get_capabilities()
            return any(features.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        return torch.cpu._is_avx512_bf16_supported()  # torch 2.11 has nothing public
    return False


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that the memory of the device or the host is used up."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and SIGNS.search(str(error)) is not None


def has_tensor_cores(device: torch.device) -> bool:
    """Whether a device is a CUDA GPU that multiplies matrices of float16 far faster than of float32: Volta and later.

    Args:
        device: Where the tensors lie.
    """
    return device.type == "cuda" and torch.cuda.is_available() and _capability(device) >= 7


def has_tf32(device: torch.device) -> bool:
    """Whether a device has units for TF32: NVIDIA's GPUs from Ampere on, and AMD's from MI300 on.

    Args:
        device: Where the tensors lie.
    """
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    if torch.version.hip:
        return torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx94")
    return _capability(device) >= 8


def _capability(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).major
