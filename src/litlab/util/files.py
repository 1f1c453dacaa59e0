"""Files that are whole whenever the machine stops, and downloads that end."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from litlab.errors import UserError

TEMPORARY = ".tmp"  # how the names of files end that are being written


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under another name, sync it, then rename it: readers see the whole old file or the whole new one.

    Args:
        path: The file.
        write: Writes its content into a stream.

    Raises:
        OSError: If it can't be written, as with a full disk; the old content stays.
    """
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync(path.parent)  # the new name is kept only once the folder is, too
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Make sure that a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(key: str, folder: Path) -> None:
    """Check that a folder can be written to, or made, before anything is computed that is to go into it.

    Args:
        key: What names it: the start of the message.
        folder: The folder. It need not exist yet.

    Raises:
        UserError: If it can't.
    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    is_open = os.access(nearest, os.W_OK | os.X_OK) and nearest.stat().st_mode & 0o222  # root has access to all
    if not nearest.is_dir() or not is_open:
        raise UserError(f"{key}: {nearest} is no folder that can be written to; choose another place")


@contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Make downloads fail that would otherwise wait for ever for the next bytes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
