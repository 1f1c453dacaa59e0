"""What a process inherits from the shell or a launcher: working directory, folders, ranks and ports. Needs no torch."""

import os
import re
from pathlib import Path

from litlab.errors import UserError

# Variables that Lightning, torch or litlab read as whole numbers, by their smallest value.
NUMBERS = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "JSM_NAMESPACE_RANK"), 0),
    **dict.fromkeys(("JSM_NAMESPACE_LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), 0),
    **dict.fromkeys(("SLURM_JOB_ID", "SLURM_RESTART_COUNT"), 0),
    **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "JSM_NAMESPACE_SIZE", "MASTER_PORT", "STANDALONE_PORT"), 1),
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES"), 1),
}
SIZES = {"RANK": "WORLD_SIZE", "LOCAL_RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}
LONGEST_NAME = 200  # bytes; file systems take 255, and checkpoints get an ending and a temporary name
SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
NODE = ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "TORCHELASTIC_RUN_ID", "LSB_JOBID", "KUBERNETES_PORT",
        "OMPI_COMM_WORLD_RANK", "PMI_RANK")  # fmt: skip


def check_working_directory() -> None:
    """Check that the working directory still exists.

    Raises:
        UserError: If it was deleted, moved, or can't be entered.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise UserError(f"working directory: {error.strerror}; change to another one") from error


def check_folder(key: str, folder: Path) -> None:
    """Check that a folder can be written to, or made, before anything is computed that is to go into it.

    Args:
        key: What names it: the start of the message.
        folder: The folder. It need not exist yet.

    Raises:
        UserError: If it can't.
    """
    check_names(key, folder)
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.is_symlink() or path.exists())
        if not there.is_dir():
            raise UserError(f"{key}: {there} is not a folder; move it away, or choose another place")
        if not os.access(there, os.W_OK | os.X_OK) or not there.stat().st_mode & 0o222:  # root has access to all
            raise UserError(f"{key}: {there} is read-only; change its permissions, or choose another place")
    except OSError as error:  # a path that is too long, a loop of links
        raise UserError(f"{key}: {folder}: {error.strerror}; choose another place") from error


def check_names(key: str, path: Path) -> None:
    """Check that file systems take the names in a path.

    Args:
        key: What names it: the start of the message.
        path: The file or folder.

    Raises:
        UserError: If one is too long, or has a null character.
    """
    for part in path.parts:
        if "\0" in part:
            raise UserError(f"{key}: {str(path)!r} holds a null character; delete it")
        if len(os.fsencode(part)) > LONGEST_NAME:
            raise UserError(f"{key}: a name of {len(part)} characters is too long; use at most {LONGEST_NAME}")


def check_variables() -> None:
    """Check the variables that give a process its place among others, before anything acts on them.

    Raises:
        UserError: If one is not a number, is out of range, or lacks another one that belongs to it.
    """
    numbers = {name: _number(name, os.environ[name]) for name in NUMBERS if name in os.environ}
    for rank, size in SIZES.items():
        # A rank above 0 prints and writes nothing: set by mistake, it would make a whole run disappear.
        if numbers.get(rank, 0) >= numbers.get(size, 1):
            total = f"{size} is {numbers[size]}" if size in numbers else f"{size} is not set"
            raise UserError(f"environment: {rank} is {numbers[rank]}, but {total}; unset {rank}, or set both")
    address = os.environ.get("MASTER_ADDR")
    if address is not None and not re.fullmatch(r"[\w.:%-]+", address):
        raise UserError(f"environment: MASTER_ADDR is {address!r}; it must be the name or address of a host")
    interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    if "SLURM_NTASKS" in numbers and not interactive:
        _check_complete("SLURM_NTASKS", SRUN, "start with srun")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _check_complete("TORCHELASTIC_RUN_ID", TORCHRUN, "start with torchrun")


def knows_its_node() -> bool:
    """Return whether the environment says which of several nodes this process runs on."""
    return any(name in os.environ for name in NODE)


def _number(name: str, text: str) -> int:
    least, most = NUMBERS[name], 65535 if name.endswith("_PORT") else None
    value = int(text) if text.strip().removeprefix("-").isdecimal() else None
    if value is None or value < least or (most is not None and value > most):
        wanted = f"a whole number from {least} to {most}" if most else f"a whole number of at least {least}"
        raise UserError(f"environment: {name} is {text!r}; it must be {wanted}, or not set")
    return value


def _check_complete(given: str, needed: tuple[str, ...], advice: str) -> None:
    if missing := [name for name in needed if name not in os.environ]:
        raise UserError(f"environment: {given} is set without {', '.join(missing)}; {advice}, or unset {given}")
