"""What a container may use: the limits of its control groups, version 1 or 2."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")  # a line each: number, controllers, path
UNLIMITED = 2**60  # bytes; version 1 has a number near 2**63 for no limit


def core_quota(root: Path = ROOT, own: Path = OWN) -> float | None:
    """Return how many cores' worth of time this process gets; None without a limit.

    Args:
        root: Where the groups are mounted.
        own: The file that says which groups this process is in.
    """
    quotas = []
    for folder in _folders("cpu", root, own):
        words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and all(map(str.isdecimal, words)):  # max or -1: no limit
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_room(root: Path = ROOT, own: Path = OWN) -> tuple[int, int] | None:
    """Return the memory limit of this process and what is left of it, in bytes; None without a limit.

    Args:
        root: As of `core_quota`.
        own: As of `core_quota`.
    """
    rooms = []
    for folder in _folders("memory", root, own):
        limit = _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes") or ["max"]
        used = _words(folder / "memory.current") or _words(folder / "memory.usage_in_bytes") or ["0"]
        if limit[0].isdecimal() and int(limit[0]) < UNLIMITED:
            rooms.append((int(limit[0]), int(limit[0]) - int(used[0])))
    return min(rooms, key=lambda room: room[1], default=None)


def _folders(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """Yield the group of this process and those that it is in, up to the mount: the tightest limit counts.

    Within a container the path may be that of the host, which is not there; the mount is then its own group.
    """
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / controllers if controllers else root
        group = mount / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(mount))


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
