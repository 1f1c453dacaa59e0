"""The epoch of a checkpoint file."""

from pathlib import Path

from litlab.util.torch_files import read_torch_file


def epoch_of(path: str | Path) -> int | None:
    """Return the epoch, from 0, in which a checkpoint was written; None for a remote or sharded one."""
    if not Path(path).is_file():
        return None
    # Mapped, not read: the file may hold gigabytes, and the number is in its first kilobytes.
    return read_torch_file(path, mmap=True)["epoch"]
