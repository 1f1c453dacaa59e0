"""What a process inherits from the shell or a launcher: the working directory, ranks and ports. Needs no torch."""

import os
import re
from pathlib import Path

from litlab.errors import UserError

# Name of each variable that Lightning, torch or this project reads as a whole number: its least and its highest value.
NUMBERS: dict[str, tuple[int, int | None]] = {
    "RANK": (0, None),
    "LOCAL_RANK": (0, None),
    "NODE_RANK": (0, None),
    "GROUP_RANK": (0, None),
    "WORLD_SIZE": (1, None),
    "LOCAL_WORLD_SIZE": (1, None),
    "MASTER_PORT": (1, 65535),
    "STANDALONE_PORT": (1, 65535),
    "JSM_NAMESPACE_RANK": (0, None),
    "JSM_NAMESPACE_LOCAL_RANK": (0, None),
    "JSM_NAMESPACE_SIZE": (1, None),
    "SLURM_PROCID": (0, None),
    "SLURM_LOCALID": (0, None),
    "SLURM_NODEID": (0, None),
    "SLURM_NTASKS": (1, None),
    "SLURM_NTASKS_PER_NODE": (1, None),
    "SLURM_NNODES": (1, None),
    "SLURM_JOB_ID": (0, None),
    "SLURM_RESTART_COUNT": (0, None),
}
SIZES = {"RANK": "WORLD_SIZE", "LOCAL_RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS"}
LONGEST_NAME = 200  # bytes; file systems take 255, and checkpoints get an ending and a temporary name
SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


def check_working_directory() -> None:
    """Checks that the working directory still exists.

    Raises:
        UserError: If it was deleted, moved, or can't be entered.
    """
    try:
        Path.cwd()
    except OSError as error:
        raise UserError(f"the working directory can't be used: {error.strerror}: change to another one.") from error


def check_folder(key: str, folder: Path) -> None:
    """Checks that a folder can be written to, or made, before anything is computed that is to go into it.

    Args:
        key: What names it: the start of the message.
        folder: The folder. It need not be there yet.

    Raises:
        UserError: If it can't.
    """
    for part in folder.parts:
        if "\0" in part:
            raise UserError(f"{key}: {str(folder)!r} holds a null character: take it out.")
        if len(os.fsencode(part)) > LONGEST_NAME:
            raise UserError(f"{key}: a name of {len(part)} characters is too long: use {LONGEST_NAME} or less.")
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.is_symlink() or path.exists())
        if not there.is_dir():
            raise UserError(f"{key}: {there} is not a folder: move it away, or choose another place.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise UserError(f"{key}: {there} is read-only: change its permissions, or choose another place.")
    except OSError as error:  # a path that is too long, a loop of links
        raise UserError(f"{key}: {folder}: {error.strerror}.") from error


def check_variables() -> None:
    """Checks the variables that tell a process its place among others, before anything acts on them.

    Raises:
        UserError: If one is not a number, is out of range, or lacks another one that belongs to it.
    """
    numbers = {name: _number(name, os.environ[name]) for name in NUMBERS if name in os.environ}
    for rank, size in SIZES.items():
        # A rank above 0 prints and writes nothing: set by mistake, it would make a whole run disappear.
        if numbers.get(rank, 0) >= numbers.get(size, 1):
            total = f"{size} is {numbers[size]}" if size in numbers else f"{size} is not set"
            raise UserError(f"{rank} is {numbers[rank]} in the environment, but {total}: unset {rank}, or set both.")
    address = os.environ.get("MASTER_ADDR")
    if address is not None and not re.fullmatch(r"[\w.:%-]+", address):
        raise UserError(f"MASTER_ADDR is {address!r} in the environment: it must be the name or address of a host.")
    interactive = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    if "SLURM_NTASKS" in numbers and not interactive:
        _check_complete("SLURM_NTASKS", SRUN, "start with srun")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _check_complete("TORCHELASTIC_RUN_ID", TORCHRUN, "start with torchrun")


def knows_its_node() -> bool:
    """Whether the environment says which of several nodes this process runs on."""
    names = (
        *("NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "TORCHELASTIC_RUN_ID"),
        *("LSB_JOBID", "KUBERNETES_PORT", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    )
    return any(name in os.environ for name in names)


def _number(name: str, text: str) -> int:
    least, most = NUMBERS[name]
    value = int(text) if text.strip().removeprefix("-").isdecimal() else None
    if value is None or value < least or (most is not None and value > most):
        wanted = f"a number from {least} to {most}" if most is not None else f"a whole number, {least} or more"
        raise UserError(f"{name} is {text!r} in the environment: it must be {wanted}; correct or unset it.")
    return value


def _check_complete(given: str, needed: tuple[str, ...], advice: str) -> None:
    if missing := [name for name in needed if name not in os.environ]:
        raise UserError(f"{given} is set in the environment, but {', '.join(missing)} not: {advice}, or unset {given}.")
