"""Folders of arrays that are whole or not there: written aside, checked, renamed."""

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.util.files import sync

_MANIFEST = "checksums.json"
_BLOCK = 2**20
_CHECKED_BLOCKS = 2**10  # of larger files only so many blocks are checked, evenly spread: at most a second


def checksum(path: Path) -> int:
    """CRC-32 of a file, or of 1 GiB of evenly spread blocks of it where it is larger."""
    blocks = -(-path.stat().st_size // _BLOCK)
    step = max(1, -(-blocks // _CHECKED_BLOCKS))
    crc = 0
    with path.open("rb") as stream:
        for block in range(0, blocks, step):
            stream.seek(block * _BLOCK)
            crc = zlib.crc32(stream.read(_BLOCK), crc)
    return crc


def find_corruption(folder: Path, *, quick: bool = False) -> str | None:
    """Return the first fault of a cache, None where there is none; `quick` compares sizes only, not contents."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"{_MANIFEST} is unreadable ({error})"
    for name, (size, crc) in manifest.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes instead of {size}"
        if not quick and checksum(path) != crc:
            return f"{name} has changed"
    return None


def is_whole(folder: Path) -> bool:
    """Whether a cache is there and whole; says so where it is damaged."""
    if not folder.is_dir():
        return False
    fault = find_corruption(folder)
    if fault:
        rank_zero_info(f"{folder}: the cache is damaged ({fault}); it is made again")
    return fault is None


@contextmanager
def cache_lock(cache_dir: Path) -> Iterator[None]:
    """Let one process at a time fill the caches of a folder: those that come later find its work done.

    Raises:
        UserError: The folder can't be made or written into.
    """
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        file = (cache_dir / ".lock").open("a")
    except OSError as error:
        raise _not_writable(cache_dir, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rank_zero_info(f"{cache_dir}: another process prepares data here; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:  # some network file systems can't
            rank_zero_info(f"{cache_dir} can't be locked ({error.strerror}): processes may prepare the same data twice")
        yield


@contextmanager
def new_cache(folder: Path, size: int) -> Iterator[Path]:
    """Fill a cache: the body writes into a temporary folder, which gets its name only when it is whole.

    A process that is killed on the way leaves no cache, and of two that write the same one, the first wins.

    Args:
        folder: Where the cache shall be; a damaged one there is replaced.
        size: Bytes that will be written, about.

    Yields:
        The folder to write the files into.

    Raises:
        UserError: The place is not writable, or full.
    """
    parent = folder.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(parent).free
        if free < size * 1.05:
            raise _full(parent, size, free)
        _sweep(folder)
        staging = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=parent))
    except OSError as error:
        raise _not_writable(parent, error) from error
    try:
        yield staging
        manifest = {path.name: (path.stat().st_size, checksum(path)) for path in sorted(staging.iterdir())}
        (staging / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in (*staging.iterdir(), staging):
            sync(path)
        staging.chmod(0o755)  # mkdtemp makes it private, but caches may be shared
        _put(staging, folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(parent, size, shutil.disk_usage(parent).free) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _not_writable(parent: Path, error: OSError) -> UserError:
    return UserError(
        f"{parent}: the cache can't be written ({error.strerror}); choose another folder with --data.cache_dir"
    )


def _full(parent: Path, size: int, free: int) -> UserError:
    return UserError(
        f"{parent}: not enough space for the cache ({size / 2**30:.2f} GiB needed, {free / 2**30:.2f} GiB free); "
        f"make room or choose another folder with --data.cache_dir"
    )


def _put(staging: Path, folder: Path) -> None:
    """Rename onto `folder`, unless a whole one is there, which others may be about to open.

    A folder can't replace a full one in one step, so a damaged one is moved out first.
    """
    for _ in range(10):  # another process may put one there between the two steps
        try:
            os.rename(staging, folder)
            sync(folder.parent)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if find_corruption(folder) is None:
            return
        old = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
        try:
            os.rename(folder, old)
        except FileNotFoundError:
            pass  # the other process was quicker
        finally:
            shutil.rmtree(old, ignore_errors=True)
    raise RuntimeError(f"{folder}: several processes replace this cache over and over")


def _sweep(folder: Path) -> None:
    """Delete what killed processes left behind more than a day ago."""
    for path in folder.parent.glob(f"{folder.name}.tmp-*"):
        if time.time() - path.stat().st_mtime > 86_400:
            shutil.rmtree(path, ignore_errors=True)


def read_meta(folder: Path) -> dict[str, Any]:
    """Return what the meta.json of a cache says; a RuntimeError where there is no whole cache."""
    if fault := find_corruption(folder, quick=True):
        raise RuntimeError(f"{folder}: {fault}; prepare_data() makes this cache")
    return json.loads((folder / "meta.json").read_text(encoding="utf-8"))


def write_array(path: Path, item_shape: tuple[int, ...], blocks: Iterable[np.ndarray]) -> int:
    """Write uint8 blocks one after the other as one .npy file; they need not fit into memory together.

    Args:
        path: The file.
        item_shape: Shape of the whole array but for its first axis.
        blocks: Its parts along the first axis.

    Returns:
        How long the first axis is.

    Raises:
        ValueError: A part has another shape or type.
    """
    count = 0
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False}
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (0, *item_shape)})
        start = stream.tell()
        for block in blocks:
            if block.dtype != np.uint8 or block.shape[1:] != item_shape:
                raise ValueError(f"a {block.dtype} block of shape {block.shape} in an array of {item_shape}")
            stream.write(np.ascontiguousarray(block).data)
            count += len(block)
        stream.seek(0)
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (count, *item_shape)})
        if stream.tell() != start:  # NumPy leaves room for the first axis to grow
            raise RuntimeError(f"{path}: its header has grown from {start} to {stream.tell()} bytes")
    return count


def open_array(path: Path) -> np.ndarray:
    """Map a .npy file into memory, its pages shared between processes; writing to it changes a private copy."""
    return np.load(path, mmap_mode="c", allow_pickle=False)
