"""Memory of this process."""

import sys

GIB = 2**30


def peak_host_gib() -> float:
    """Return the most memory that this process has had resident, in GiB."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB
