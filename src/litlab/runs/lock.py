"""Locks on folders that end with their process, however it ends."""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning_utilities.core.rank_zero import rank_zero_only  # Lightning's own, without importing all of it

NAME = ".lock"
SECONDS_BETWEEN_TRIES = 0.1
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # where Lightning looks, in this order

_held: dict[Path, int] = {}  # folder -> descriptor of its lock


def is_first_process() -> bool:
    """Whether this process is the one of its run that writes files: no rank that a launcher has started beside it.

    It can be asked before a Trainer exists, and in a process that was forked from one that knew nothing of ranks.
    """
    node = os.environ.get("GROUP_RANK", os.environ.get("NODE_RANK", "0"))  # of torchrun, of Lightning
    known = [os.environ[name] for name in RANKS if name in os.environ]
    rank = known[0] if known else str(getattr(rank_zero_only, "rank", 0))
    return rank == "0" and node in ("0", "")


def hold(folder: Path, seconds: float = 0.0) -> bool:
    """Locks a folder until `release`, or until the process ends; what it holds already it may lock again.

    Args:
        folder: The folder; it must be there.
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
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(SECONDS_BETWEEN_TRIES)
            continue
        except OSError as error:  # some network file systems can't lock
            _warn(folder, error)
        _held[folder] = descriptor
        return True


def is_held_elsewhere(folder: Path) -> bool:
    """Whether another process holds the lock of a folder."""
    if folder.resolve() in _held or not (folder / NAME).is_file():
        return False
    try:
        descriptor = os.open(folder / NAME, os.O_RDWR)
    except OSError:
        return False  # a lock that can't be opened for writing is none of a process of this user
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lets one process at a time look at a folder and change it; the lock leaves nothing there.

    Raises:
        OSError: If nothing can be written there.
    """
    path = folder / NAME
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            _warn(folder, error)
            break
        if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
            break
        os.close(descriptor)  # whoever had it has removed the file: there is another one by now, or none
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _warn(folder: Path, error: OSError) -> None:
    print(
        f"warning: {folder} can't be locked ({error.strerror}): see to it that only one process trains there.",
        file=sys.stderr,
    )


def release() -> None:
    """Gives all locks back."""
    while _held:
        os.close(_held.popitem()[1])


os.register_at_fork(after_in_child=release)  # a worker that outlives a killed process must not hold its lock
