"""Folders that appear only once they are complete: they are filled under a temporary name, then
renamed.
"""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock
from lightning.pytorch.utilities import rank_zero_info
from tqdm import tqdm

from litlab.errors import UserError
from litlab.util.checksums import CHECKSUMS, find_damaged, write_checksums
from litlab.util.files import check_replaceable, record_digests, sync

_UNUSED = 60  # days after which a cache is removed


def name_cache(kind: str, *facts: Any) -> str:
    """Return the name of a cache, which changes with any of some facts."""
    return f"{kind}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def fill_cache(folder: Path, fill: Callable[[Path], object]) -> None:
    """Make sure that a cache is there, and whole; one process at a time fills the caches of a
    folder. When one is filled, those that no run has used for 60 days are removed.

    Args:
        folder: The cache. Its name changes with what is in it, so one that is there and not damaged
            is good.
        fill: Writes the files into the folder that it gets.

    Raises:
        UserError: The place can't be written to, or is full.
    """
    # Without the lock, as nearly all runs find it whole. The time of its last use is noted, for
    # `_remove_unused`
    if find_damaged(folder) is None:
        with suppress(PermissionError):  # of somebody else's
            os.utime(folder / CHECKSUMS)
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / ".lock"):
            damaged = find_damaged(folder)
            if damaged is None:  # another process has filled it meanwhile
                return
            if folder.exists():
                line = f"warning: {folder}: {damaged} is damaged; the data is prepared again"
                logging.getLogger("lightning.pytorch").info(line)  # whichever rank it is
                shutil.rmtree(folder)
            for left in folder.parent.glob(f".{folder.name}-*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            with new_folder(folder) as staging:
                fill(staging)
                write_checksums(staging)
            _remove_unused(folder.parent)
    except OSError as error:
        raise UserError(
            f"data.cache_dir: {folder.parent} can't be written ({error.strerror}); name another"
        ) from error


def _remove_unused(root: Path) -> None:
    # Folders that the data modules name, such as texts-0123456789ab: the user may have others here
    mark = "[0-9a-f]" * 12
    for file in root.glob(f"[a-z]*-{mark}/{CHECKSUMS}"):
        days = (time.time() - file.stat().st_mtime) / 86_400
        if days > _UNUSED:
            rank_zero_info(f"{file.parent}: no run has used it for {days:.0f} days; it is removed")
            shutil.rmtree(file.parent, ignore_errors=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder under another name; it gets its own when all of it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield staging
        # On the disk before it gets its name: after a power cut it is whole, or not there
        for path in (*staging.rglob("*"), staging):
            sync(path)
        staging.chmod(0o755)  # temporary folders are private, but caches may be shared
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder as `new_folder`, in place of an earlier one: see `check_replaceable`."""
    with new_folder(folder) as staging:
        yield staging
        record_digests(staging)
        # Once more, as filling may take hours: somebody may have put something there meanwhile
        check_replaceable(folder)
        shutil.rmtree(folder, ignore_errors=True)


# Only where the work takes longer than two seconds, and only on a terminal.
progress_bar = partial(tqdm, delay=2, disable=None)
