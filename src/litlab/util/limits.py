"""What a container or a job may take of the machine, by the control groups of Linux."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
GROUP = Path("/proc/self/cgroup")  # which of them this process is in
# Files of limit and use, in version 2 and 1
_MEMORY = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


def find_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's control group and of those that it is in.

    Within a container the path may be that of the host, which is not there.

    Args:
        controller: What is limited: cpu or memory.
    """
    lines = GROUP.read_text().splitlines() if GROUP.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 has none, and all in one tree; version 1 may have several, as cpu,cpuacct
        if not controllers or controller in controllers.split(","):
            group = CGROUPS / controllers / path.lstrip("/")
            yield from (group, *group.parents)


def count_cores() -> float:
    """Return how many cores this process may compute on, of a container perhaps a part of one."""
    cores: float = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for folder in find_groups("cpu"):
        # The time that is granted in each period
        most, period = (_find_number(folder / "cpu.max", end) for end in (r"^(\d+) ", r" (\d+)$"))
        if most is None:  # no limit, or version 1
            files = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            most, period = (_find_number(folder / file) for file in files)
        if most and period:
            cores = min(cores, most / period)
    return cores


def find_memory() -> tuple[int, int]:
    """Return how many bytes of memory there are for this process, and how many of them are free."""
    import psutil  # `doctor` says where it is missing

    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    for folder in find_groups("memory"):
        for limit_file, use_file in _MEMORY:
            limit = _find_number(folder / limit_file)
            if limit is not None:
                # Pages of files that nobody reads now are given back when memory is short
                pages = _find_number(folder / "memory.stat", r"^(?:total_)?inactive_file (\d+)")
                use = (_find_number(folder / use_file) or 0) - (pages or 0)
                total, free = min(total, limit), min(free, max(0, limit - use))
    return total, free


def _find_number(file: Path, pattern: str = r"^(\d+)$") -> int | None:
    """Return the number in a control file; None where there is no file, or no limit."""
    found = re.search(pattern, file.read_text(), re.MULTILINE) if file.is_file() else None
    return int(found[1]) if found else None
