"""Write checkpoint files completely or not at all, and find the newest one that is intact."""

import errno
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.utilities import rank_zero_info
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from litlab.checkpointing.load import find_corruption
from litlab.checkpointing.shard_tensors import fill
from litlab.checkpointing.shards import folder_of, mark_replaced, mark_unfinished, remove_unnamed
from litlab.errors import UserError, first_line
from litlab.util.files import TEMPORARY, write_atomically
from litlab.util.torch_files import read_torch_file, stored_parts

# Python ignores SIGXFSZ, so that a file over the size limit (`ulimit -f`) fails as a full disk does, with EFBIG.
NO_ROOM = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than the system allows (ulimit -f)",
}
ABANDONED_SECONDS = 3600  # no file that is being written stays unchanged for so long


class AtomicCheckpointIO(CheckpointIO):
    """Write each checkpoint to a temporary file in the same folder, sync it, and rename it.

    Whenever the process or the machine dies, the name stands for the complete old file or the complete new one.
    Lightning's own writer (2.6.6) serialises into memory first, stages the bytes in $TMPDIR and moves them, which is a
    copy where that is on another file system, and does not sync. Files are read with ``weights_only=True`` and only if
    all of their checksums match.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint to a local file; an existing one stays as it is if this one can't be written.

        Raises:
            UserError: If there is no room for it, or the path is remote.
        """
        if "://" in str(path):
            raise UserError(f"checkpoint.dirpath: {path} is remote; give a local folder.")
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path.parent)
        try:
            mark_replaced(path)
            write_atomically(path, lambda stream: torch.save(checkpoint, stream))
            remove_unnamed(path.parent)
        except BaseException as error:
            if full := no_room(error, path, checkpoint):
                raise UserError(full) from error
            raise

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read a checkpoint that is intact, as ``weights_only=True`` whatever is given: nothing in it is executed.

        Raises:
            UserError: If there is no such file, or it is damaged.
        """
        if not Path(path).is_file():
            raise UserError(f"checkpoint {path}: no such file.")
        if found := find_corruption(path):
            raise UserError(f"checkpoint {path}: it is damaged ({found}); use another one.")
        checkpoint = read_torch_file(path, map_location)
        fill(Path(path), checkpoint)
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint: a file with its shards, or the folder that a strategy of Lightning's own writes."""
        path = Path(path)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            return
        folder = folder_of(path)
        path.unlink(missing_ok=True)  # which makes room for the mark, should the disk be full
        if folder:
            mark_unfinished(folder)
            remove_unnamed(path.parent)


def newest_intact(folder: str | Path) -> tuple[Path | None, list[str]]:
    """Return the checkpoint to resume from: of those that are intact, the one with most optimizer steps.

    Args:
        folder: The folder of the ``*.ckpt`` files. Those of as many steps are ordered by their time.

    Returns:
        The file, None where none is intact, and a line for each file that was skipped because it is damaged.
    """
    found: list[tuple[int, int, Path]] = []
    notes: list[str] = []
    for path in sorted(path for path in Path(folder).glob("*.ckpt") if path.is_file()):
        try:
            steps = read_torch_file(path, mmap=True)["global_step"]
            found.append((int(steps), path.stat().st_mtime_ns, path))
        except FileNotFoundError:  # another process of this run has just removed it
            continue
        except Exception as error:  # of pickle or torch; they depend on what the bytes say
            problem = find_corruption(path) or first_line(error).rstrip(".")
            notes.append(f"checkpoint {path} is damaged ({problem}): skipped.")
    for _, _, path in sorted(found, reverse=True):
        problem = find_corruption(path)
        if problem is None:
            return path, notes
        notes.append(f"checkpoint {path} is damaged ({problem}): skipped.")
    return None, notes


def path_in(folder: str | Path, path: str, was_in: str | Path | None) -> str:
    """Return where a checkpoint is that the state of another one names: the folder of both may have been moved.

    A checkpoint may come from another person. Lightning removes the files that its state names, so none may be outside.

    Args:
        folder: The folder of the other one now.
        path: What the state says.
        was_in: The folder that it was written in.
    """
    name = os.path.relpath(path, was_in or Path(path).parent)
    outside = os.pardir in Path(name).parts or os.path.isabs(name)
    return os.path.join(folder, Path(path).name if outside else name)


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed processes left of checkpoints that they were writing."""
    for path in folder.glob(f".*.ckpt.*{TEMPORARY}"):
        host, pid = path.name.removesuffix(TEMPORARY).rsplit(".", 2)[-2:]
        try:
            abandoned = time.time() - path.stat().st_mtime > ABANDONED_SECONDS
        except FileNotFoundError:  # another process of the same folder was faster
            continue
        if host == socket.gethostname():
            abandoned |= int(pid) == os.getpid() or not psutil.pid_exists(int(pid))
        if abandoned:
            path.unlink(missing_ok=True)
            rank_zero_info(f"Removed {path}, which a killed process left.")


def no_room(error: BaseException | None, path: Path, checkpoint: Any) -> str | None:
    """Return what to tell a user whose checkpoint could not be written, None where there was room.

    Args:
        error: What was raised.
        path: The checkpoint's file.
        checkpoint: What was to be written.
    """
    while error is not None:  # torch's archive writer fails on top of the OSError, with its own
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return _full(path, checkpoint, NO_ROOM[error.errno])
        error = error.__cause__ or error.__context__
    return None


def _full(path: Path, checkpoint: Any, reason: str) -> str:
    tensors: list[Tensor] = []
    apply_to_collection(checkpoint, Tensor, lambda tensor: tensors.extend(stored_parts(tensor)))
    storages = [tensor.untyped_storage() for tensor in tensors]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}  # tensors may share one
    needed, free = sum(sizes.values()) / 2**20, shutil.disk_usage(path.parent).free / 2**20
    old = "the old file of this name is intact" if path.is_file() else "earlier checkpoints are intact"
    return (
        f"checkpoint {path}: it can't be written, as {reason} ({needed:.1f} MiB needed, {free:.1f} MiB free), but "
        f"{old}; make room, then resume the run."
    )


def load_checkpoint(path, weights=True):
    from litlab.checkpointing.load import load_checkpoint as load

    return load(path, weights)


def check_weights(model, checkpoint):
    from litlab.runs.config_diff import check_weights as check

    check(model, checkpoint, {})
