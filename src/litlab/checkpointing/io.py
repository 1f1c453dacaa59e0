"""Checkpoint files that are whole or not there, and the newest one that is whole."""

import errno
import os
import shutil
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.checkpointing.load import damage
from litlab.errors import UserError, first_line
from litlab.util.atomic import TEMPORARY, write_whole

# Python ignores SIGXFSZ, so that a file over the size limit (`ulimit -f`) fails as a full disk does, with EFBIG.
NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the system allows (ulimit -f)",
}
ABANDONED_SECONDS = 3600  # no file that is being written stays unchanged for so long


class AtomicCheckpointIO(CheckpointIO):
    """Writes each checkpoint to a temporary file in the same folder, syncs it, and renames it to its name.

    Whenever the process or the machine dies, the name stands for the whole old file or the whole new one. Lightning's
    own writer (2.6.6) serialises into memory first, stages the bytes in $TMPDIR and moves them, which is a copy where
    that lies on another file system, and does not sync. Files are read with ``weights_only=True`` and only if all of
    their checksums hold.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a checkpoint.

        Args:
            checkpoint: What ``Trainer.dump_checkpoint`` collected.
            path: A local file; one that is there is replaced, or stays whole if this one can't be written.
            storage_options: Of no meaning for local files.

        Raises:
            UserError: If there is no room for it, or the path is remote.
        """
        if "://" in str(path):
            raise UserError(f"checkpoint.dirpath: {path} is remote: give a local folder.")
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        try:
            write_whole(path, lambda stream: torch.save(checkpoint, stream))
        except BaseException as error:
            if reason := _no_room(error):
                raise UserError(_full(path, checkpoint, reason)) from error
            raise

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Reads a checkpoint that is whole.

        Args:
            path: A local file.
            map_location: Where its tensors go, as for ``torch.load``.
            weights_only: Taken as True, whatever it is: nothing in a file is executed.

        Raises:
            UserError: If there is no such file, or it is damaged.
        """
        if not Path(path).is_file():
            raise UserError(f"checkpoint {path}: no such file.")
        if found := damage(path):
            raise UserError(f"checkpoint {path} is damaged: {found}: use another one.")
        return torch.load(path, map_location=map_location, weights_only=True)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes a checkpoint, a folder too (sharded strategies write folders)."""
        path = Path(path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def newest_intact(folder: str | Path) -> tuple[Path | None, list[str]]:
    """The checkpoint to resume from: of those that are whole, the one that training had come furthest in.

    Args:
        folder: Where ``*.ckpt`` files lie. They are ordered by the optimizer steps they hold, then by their time.

    Returns:
        The file, None where no one is whole, and a line for each file that was passed over because it is damaged.
    """
    found: list[tuple[int, int, Path]] = []
    notes: list[str] = []
    for path in sorted(Path(folder).glob("*.ckpt")):
        if not path.is_file():
            continue
        try:
            step = _steps(path)
        except FileNotFoundError:  # another process of this run has just removed it
            continue
        except Exception as error:
            notes.append(f"checkpoint {path} is damaged ({damage(path) or first_line(error).rstrip('.')}): skipped.")
            continue
        found.append((step, path.stat().st_mtime_ns, path))
    for _, _, path in sorted(found, reverse=True):
        problem = damage(path)
        if problem is None:
            return path, notes
        notes.append(f"checkpoint {path} is damaged ({problem}): skipped.")
    return None, notes


def path_in(folder: str | Path, path: str, was_in: str | Path | None) -> str:
    """Where a checkpoint lies that the state in another one names, beside that other one: the folder may have moved.

    A checkpoint may come from somebody else. Lightning removes the files that its state names, so none may be outside.

    Args:
        folder: Where the other one lies now.
        path: What the state says.
        was_in: The folder that it was written in.
    """
    name = os.path.relpath(path, was_in or Path(path).parent)
    outside = os.pardir in Path(name).parts or os.path.isabs(name)
    return os.path.join(folder, Path(path).name if outside else name)


def _steps(path: Path) -> int:
    """Optimizer steps that a checkpoint says it holds; of its tensors nothing is read."""
    with zipfile.ZipFile(path) as archive:
        archive.read(next(name for name in archive.namelist() if name.endswith("/data.pkl")))  # checks its checksum
    return int(torch.load(path, map_location="cpu", weights_only=True, mmap=True)["global_step"])


def _sweep(folder: Path) -> None:
    """Removes what killed processes left of checkpoints that they were writing."""
    for path in folder.glob(f".*.ckpt.*{TEMPORARY}"):
        host, pid = path.name.removesuffix(TEMPORARY).rsplit(".", 2)[-2:]
        try:
            abandoned = time.time() - path.stat().st_mtime > ABANDONED_SECONDS
        except FileNotFoundError:  # another process of the same folder was faster
            continue
        if host == socket.gethostname():
            abandoned |= pid == str(os.getpid()) or not _alive(int(pid))
        if abandoned:
            path.unlink(missing_ok=True)
            rank_zero_info(f"Removed {path}, which a killed process left.")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _no_room(error: BaseException | None) -> str | None:
    while error is not None:  # torch's archive writer fails on top of the OSError, with its own
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return NO_ROOM[error.errno]
        error = error.__cause__ or error.__context__
    return None


def _full(path: Path, checkpoint: dict[str, Any], reason: str) -> str:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _tensors(checkpoint)}
    needed, free = sum(storages.values()) / 2**20, shutil.disk_usage(path.parent).free / 2**20
    old = "the old one of this name is intact" if path.is_file() else "checkpoints written before are intact"
    return (
        f"checkpoint {path} can't be written: {reason} ({needed:.1f} MiB needed, {free:.1f} MiB free); {old}. "
        "Make room, then resume the run."
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
