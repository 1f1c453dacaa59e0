"""Locks on folders. The system releases them when their process ends, however it ends."""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lightning_utilities.core.rank_zero import rank_zero_only  # Lightning's own, without importing all of it

NAME = ".lock"
SECONDS_BETWEEN_TRIES = 0.1
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # where Lightning looks, in this order

_held: dict[Path, int] = {}  # descriptor of the lock, by folder


def is_first_process() -> bool:
    """Return whether this is the process of the run that writes files, and not one launched as a further rank.

    Unlike Lightning's rank, this is known before a Trainer exists, and in a forked process.
    """
    node = os.environ.get("GROUP_RANK", os.environ.get("NODE_RANK", "0"))  # of torchrun, of Lightning
    ranks = [os.environ[name] for name in RANKS if name in os.environ]
    rank = ranks[0] if ranks else str(getattr(rank_zero_only, "rank", 0))
    return rank == "0" and node in ("0", "")


def hold(folder: Path, seconds: float = 0.0) -> bool:
    """Lock a folder until `release`, or until the process ends; locking it again does nothing.

    Args:
        folder: The folder; it must exist.
        seconds: How long to wait for another process that holds it.

    Returns:
        False if another process still holds it.

    Raises:
        OSError: If nothing can be written there.
    """
    folder = folder.resolve()
    if folder in _held:
        return True
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + seconds
    while not _lock(descriptor, folder, wait=False):
        if time.monotonic() >= deadline:
            os.close(descriptor)
            return False
        time.sleep(SECONDS_BETWEEN_TRIES)
    _held[folder] = descriptor
    return True


def is_held_elsewhere(folder: Path) -> bool:
    """Return whether another process holds the lock of a folder."""
    if folder.resolve() in _held:
        return False
    try:
        descriptor = os.open(folder / NAME, os.O_RDWR)
    except OSError:
        return False  # there is none, or it is not of a process of this user
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time look at a folder and change it; no file of the lock stays.

    Raises:
        OSError: If nothing can be written there.
    """
    path = folder / NAME
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        _lock(descriptor, folder, wait=True)
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)  # whoever had the lock has removed the file
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def release() -> None:
    """Release all locks that `hold` took."""
    while _held:
        os.close(_held.popitem()[1])


def _lock(descriptor: int, folder: Path | None = None, wait: bool = False) -> bool:
    """Lock a file; return False if another process has. Warn about the folder if the file system can't lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:  # some network file systems can't
        if folder is not None:
            print(
                f"warning: {folder} can't be locked ({error.strerror}): make sure that only one process trains there.",
                file=sys.stderr,
            )
    return True


os.register_at_fork(after_in_child=release)  # a worker that outlives a killed process must not hold its lock
