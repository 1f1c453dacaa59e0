"""What a container or a cluster leaves to this process: cores, memory, disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from litlab.commands.doctor.line import GIB, OK, WARN, Line
from litlab.runs.folder import ROOT as RUNS

CGROUPS = Path("/sys/fs/cgroup")
GROUP = Path("/proc/self/cgroup")  # which of them this process is in
SHARED = Path("/dev/shm")  # tensors go through it from loader workers to the training; NCCL uses it, too
DATA = Path("data")
ENOUGH = 2 * GIB  # the reference experiments need less


def read_limits(name: str) -> Iterator[list[str]]:
    """Yield the words of a control file, as cpu.max, of the process's control group and of those that it is in.

    Of version 2 only. Within a container the path may be that of the host, which is not there.
    """
    if not GROUP.is_file():
        return
    path = GROUP.read_text().rpartition("::")[2].strip()
    group = CGROUPS / path.lstrip("/")
    for folder in (group, *group.parents):
        if (folder / name).is_file():
            yield (folder / name).read_text().split()


def count_cores() -> float:
    cores: float = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for quota, period in read_limits("cpu.max"):
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    return cores


def check_cores() -> Iterator[Line]:
    yield OK, f"{count_cores():g} of {os.cpu_count()}"


def check_memory() -> Iterator[Line]:
    import psutil

    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    for (limit,) in read_limits("memory.max"):
        if limit != "max":
            total, free = min(total, int(limit)), min(free, int(limit))
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= ENOUGH:
        yield OK, text
    else:
        yield WARN, f"{text}; end other programs, or raise the container's limit (docker run --memory)"


def check_shared_memory() -> Iterator[Line]:
    if not SHARED.is_dir():  # only Linux has it
        return
    free = shutil.disk_usage(SHARED).free
    if free >= GIB:
        yield OK, f"{free / GIB:.1f} GiB free"
    else:
        text = f"{free / GIB:.1f} GiB free, so that loader workers and NCCL may end with a bus error"
        yield WARN, f"{text}; docker run --shm-size 8g, or --ipc host"


def check_disk() -> Iterator[Line]:
    """Write a little where data, runs and compiled code go, or where their folders would be made."""
    for folder in (DATA, RUNS, Path(tempfile.gettempdir())):
        parents = [parent for parent in (folder, *folder.absolute().parents) if parent.exists()]
        with tempfile.TemporaryFile(dir=parents[0], buffering=0) as stream:
            stream.write(bytes(2**16))
        free = shutil.disk_usage(parents[0]).free
        if free >= ENOUGH:
            yield OK, f"{free / GIB:.1f} GiB free for {folder}"
        else:
            yield WARN, f"{free / GIB:.1f} GiB free for {folder}; make room, data sets and checkpoints need more"
