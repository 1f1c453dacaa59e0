"""Write checkpoint files completely or not at all, and read them without executing anything in
them.
"""

import errno
import os
import pickle
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError, first_line
from litlab.util.checksums import check_archive
from litlab.util.files import TEMPORARY, stage_file

# A full disk, a quota, `ulimit -f`
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A checkpoint whose tensors are in a folder beside it has this key: name and checksum of the index
SHARDS = "shards"


class AtomicCheckpointIO(CheckpointIO):
    """Write each checkpoint to a temporary file in the same folder, sync it, and rename it.

    Whenever the process or the machine dies, the name stands for the complete old file or the
    complete new one. Lightning's own writer (2.6.6) stages the bytes in $TMPDIR and moves them,
    which is a copy where that is on another file system, and does not sync.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        path = prepare_file(path)
        try:
            with stage_file(path) as temporary, temporary.open("wb") as stream:
                torch.save(checkpoint, stream)
        except (OSError, RuntimeError) as error:
            raise_if_full(error, path)
            raise
        # Those of a sharded checkpoint that had this name
        remove_shards(path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read a checkpoint, with ``weights_only=True`` whatever is asked for.

        It is not mapped: tensors that training keeps would stay on the disk.
        """
        return fill_shards(path, read_checkpoint(path, mmap=False))

    def remove_checkpoint(self, path: str | Path) -> None:
        # What a link leads to stays
        remove_shards(Path(path))
        Path(path).unlink(missing_ok=True)


def load_checkpoint(path: str | Path, weights: bool = True) -> dict[str, Any]:
    """Read a checkpoint of Lightning; tensors are mapped, not read, until they are used.

    Args:
        path: A local file.
        weights: Whether to read the weights of a sharded checkpoint. The state of its optimizers is
            left out.

    Raises:
        UserError: If there is no such file, or it can't be used.
    """
    # Mapped: commands that need the settings or a few tensors don't read gigabytes
    checkpoint = read_checkpoint(path, mmap=True)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise UserError(
            f"checkpoint {path}: it is not one of Lightning, as it has no state_dict; "
            "use another one"
        )
    return fill_shards(path, checkpoint, ["state_dict"]) if weights else checkpoint


def read_checkpoint(path: str | Path, mmap: bool) -> Any:
    """Read what torch.save wrote, with ``weights_only=True``.

    Raises:
        UserError: If it is missing, damaged, or holds more than that allows.
    """
    # Opening a FIFO would wait for ever
    if not os.path.isfile(path):
        reason = "it is not a file" if os.path.lexists(path) else "there is no such file"
        raise UserError(f"checkpoint {path}: {reason}; use another one")
    # torch.load does not look at the CRCs of the file's records
    try:
        check_archive(Path(path))
        return load_torch_file(path, mmap)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"checkpoint {path}: it holds more than weights and plain settings, or is damaged; use "
            "another one"
        ) from error
    except Exception as error:  # of many kinds, as the bytes decide
        line = first_line(error).rstrip(".")
        raise UserError(f"checkpoint {path}: it can't be read ({line}); use another one") from error


def load_torch_file(path: str | Path, mmap: bool = False) -> Any:
    """Read a file with ``weights_only=True``, also one with the quantised state of torchao's
    optimizers.
    """
    # Whether torchao is needed is known only once torch.load has refused its classes
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        if "torchao.optim" not in str(error) or "torchao.optim" in sys.modules:
            raise
    # torch.load accepts its classes then
    import_module("torchao.optim")
    return load_torch_file(path, mmap)


def fill_shards(path: str | Path, checkpoint: dict[str, Any], *arguments: Any) -> dict[str, Any]:
    """Return a checkpoint with what is in its shards, as `shard_reader.fill`."""
    if SHARDS in checkpoint:
        # Here, as DCP takes 50 ms to import
        from litlab.checkpointing.shard_reader import fill

        fill(Path(path), checkpoint.pop(SHARDS), checkpoint, *arguments)
    return checkpoint


def remove_shards(path: Path, current: str = "") -> None:
    """Remove the folders with shards of a checkpoint file, except the current one: those of earlier
    saves, and of a save that was killed. Links are left alone.
    """
    # last.ckpt.shards-500-1a2b3c4d: after step 500
    for folder in path.parent.glob(f"{path.name}.shards-*"):
        if folder.name != current and not folder.is_symlink():
            shutil.rmtree(folder)


def find_newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint to resume from: ``last.ckpt``, or if that can't be read, the newest one
        that can.

    Of a sharded one only the index is read here: each process checks the parts that it loads.

    Args:
        folder: The folder of the ``*.ckpt`` files.

    Raises:
        UserError: If there are some, but none can be used.
    """
    last = folder / "last.ckpt"
    # The run could not write there later
    if last.is_dir():
        raise UserError(
            f"checkpoint {last}: it is a folder; move it away, and the newest whole one is used"
        )

    # Damage is found by reading: last.ckpt first, then the newest. Of several problems the first is
    # told
    paths = sorted(folder.glob("*.ckpt"), key=lambda path: (path == last, path.lstat().st_mtime))
    problem = ""
    for path in reversed(paths):
        try:
            fill_shards(path, read_checkpoint(path, mmap=True), ())  # no numbers, the index alone
        except UserError as error:
            problem = problem or str(error).partition(";")[0]
            continue
        if problem:
            rank_zero_info(f"warning: {problem}; {path.name} is used")
        return path
    if problem:
        raise UserError(f"{problem}, and no other one can be used; start a new run")
    return None


def check_local(path: str | Path) -> None:
    """Refuse a remote file or folder.

    Raises:
        UserError: If it is one.
    """
    # Files are synced, renamed and mapped here, which only a local file system can do
    if "://" in str(path):
        raise UserError(f"checkpoint.dirpath: {path} is remote; give a local folder")


def prepare_file(path: str | Path) -> Path:
    """Make the folder of a file that is to be written, and remove what a killed process left of it.

    Raises:
        UserError: If it is remote.
    """
    check_local(path)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Any host and process may have left one; one run alone writes into the folder
    for temporary in path.parent.glob(f".{path.name}.*{TEMPORARY}"):
        temporary.unlink(missing_ok=True)
    return path


def raise_if_full(error: BaseException | None, path: Path) -> None:
    """Say in one line that there was no room for a checkpoint, if that is the cause of an error.

    Raises:
        UserError: If it is.
    """
    # torch's archive writer fails on top of the OSError, with an error of its own
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            reason = f"{os.strerror(error.errno)}; what was there is intact"
            raise UserError(
                f"checkpoint {path}: {reason}; make room, then resume the run"
            ) from error
        error = error.__cause__ or error.__context__
