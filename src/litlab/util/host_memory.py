"""Memory of this process."""

import ctypes
import sys

GIB = 2**30
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def peak_host_gib() -> float:
    """Return the most memory that this process has had resident, in GiB."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB


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
