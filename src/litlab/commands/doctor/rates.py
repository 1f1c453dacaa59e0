"""How fast a device computes and copies."""

import time
from collections.abc import Callable
from statistics import median

import torch

from litlab.util.device import compute_capability, has_fast_bfloat16, has_tensor_cores, synchronize

SECONDS = 0.25  # for each rate
LONG = 0.02  # seconds of one product: larger ones are no faster
LARGEST = 8192  # rows and columns
COPIED = 2**28  # bytes: more than what most caches hold
TIMES = 3  # at least


def matmul_rates(device: torch.device) -> dict[str, float]:
    """Measure products of square matrices in each precision that a device has units for.

    Args:
        device: The device.

    Returns:
        By precision (float32, tf32, bfloat16, float16) GFLOP/s, three digits of them.
    """
    wanted = {
        "float32": (torch.float32, "highest", True),
        "tf32": (torch.float32, "high", has_tf32(device)),
        "bfloat16": (torch.bfloat16, "highest", has_fast_bfloat16(device)),
        "float16": (torch.float16, "highest", has_tensor_cores(device) or device.type == "mps"),
    }
    found = {}
    for name, (dtype, precision, has_units) in wanted.items():
        if has_units:
            torch.set_float32_matmul_precision(precision)  # this process does nothing else
            found[name] = _matmul_rate(device, dtype)
    return found


def copy_rate(device: torch.device) -> float:
    """Measure copies of 256 MiB from the host to a device, on the CPU within its memory.

    Args:
        device: The device.

    Returns:
        GB/s, three digits of them.
    """
    host = torch.ones(COPIED, dtype=torch.uint8, pin_memory=device.type == "cuda")
    target = torch.empty_like(host, device=device)
    return _rounded(COPIED / _seconds(lambda: target.copy_(host, non_blocking=True), device) / 1e9)


def _matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    size = 256
    while True:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        result = torch.empty_like(left)
        multiply = lambda left=left, right=right, result=result: torch.mm(left, right, out=result)  # noqa: E731
        multiply()  # it loads kernels
        if size >= LARGEST or _once(multiply, device) > LONG:
            return _rounded(2 * size**3 / _seconds(multiply, device) / 1e9)
        size *= 2


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median of the seconds that some work takes once it is warm."""
    _once(work, device)
    times: list[float] = []
    while len(times) < TIMES or sum(times) < SECONDS:
        times.append(_once(work, device))
    return median(times)


def _once(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def has_tf32(device: torch.device) -> bool:
    """Return whether a device has units for TF32: NVIDIA's GPUs do from Ampere on, and AMD's from MI300 on."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    if torch.version.hip:
        return torch.cuda.get_device_properties(device).gcnArchName.startswith("gfx94")
    return compute_capability(device) >= 8
