"""Sharded checkpoints: a small file that names a folder beside it, in which each process has written its part.

The file is a checkpoint like any other, but its weights and optimizer states are empty tensors (on the meta device);
the numbers are in the folder, in the format of torch.distributed.checkpoint (DCP). The folder's name and the checksums
of its files are in the file, as a part of the archive that ``torch.load`` does not look at.
"""

import io
import json
import os
import re
import socket
import time
import zipfile
import zlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import psutil
from lightning.pytorch.utilities import rank_zero_info

NAMED = "archive/shards.json"
METADATA = ".metadata"
FOLDER = re.compile(r"[^/\\]+\.shards-[^/\\]+")
UNFINISHED = "unfinished"  # in a folder that may be removed where no file names it: the host and process that wrote it
ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class Shards:
    """What a small file says of its folder.

    Args:
        folder: Name of the folder, which is beside the file.
        files: Checksum (CRC-32) of each file in it.
        parameters: Names of the parameters of each optimizer, in the order that its state numbers them.
    """

    folder: str
    files: dict[str, int]
    parameters: list[list[str]]


def shards_of(path: Path) -> Shards | None:
    """Return what a checkpoint file says of its shards, None if it is whole or no archive.

    Raises:
        ValueError: If it names no folder beside it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if NAMED not in archive.namelist():
                return None
            shards = Shards(**json.loads(archive.read(NAMED)))
    except (zipfile.BadZipFile, FileNotFoundError, IsADirectoryError):
        return None
    if not FOLDER.fullmatch(shards.folder) or any(Path(name).name != name for name in shards.files):
        raise ValueError("its shards are not in a folder beside it")
    return shards


def small_file(content: bytes, shards: Shards) -> bytes:
    """Return what ``torch.save`` has made of a checkpoint, with what is to be said of its shards."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr(NAMED, json.dumps(asdict(shards)))
    return stream.getvalue()


def find_missing(path: Path, shards: Shards) -> str | None:
    """Return what is wrong with the files of a folder of shards, None where all are there and match their checksums."""
    folder = path.with_name(shards.folder)
    if not folder.is_dir():
        return f"its shards are missing: the folder {shards.folder} has to be beside it"
    for name, checksum in shards.files.items():
        if not (folder / name).is_file():
            return f"shard {shards.folder}/{name} is missing"
        found = (folder / name).stat()
        if _checksum(folder / name, found.st_size, found.st_mtime_ns) != checksum:
            return f"shard {shards.folder}/{name} does not match its checksum"
    return None


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file, as ``torch.save`` has it of its parts: 2 GiB/s, where SHA-256 has 1.2."""
    checksum = 0
    with path.open("rb") as stream:
        while block := stream.read(2**22):
            checksum = zlib.crc32(block, checksum)
    return checksum


# Folders that no file names


def mark_unfinished(folder: Path) -> None:
    """Let a folder be removed, by `remove_unnamed`, where no file names it."""
    (folder / UNFINISHED).write_text(f"{socket.gethostname()} {os.getpid()}", encoding="utf-8")


def folder_of(path: Path) -> Path | None:
    """Return the folder with the shards of a checkpoint file, if there is one. A link to a folder elsewhere is none."""
    shards = _shards_or_none(path)
    folder = path.with_name(shards.folder) if shards else None
    return folder if folder is not None and _is_own(folder) else None


def mark_replaced(path: Path) -> None:
    """Let the shards of a checkpoint file be removed once it is replaced."""
    if folder := folder_of(path):
        mark_unfinished(folder)


def remove_unnamed(parent: Path) -> None:
    """Remove folders of shards that a killed save has left, or whose file was replaced or removed."""
    marked = [mark.parent for mark in parent.glob(f"*.shards-*/{UNFINISHED}") if _is_own(mark.parent)]
    if not marked:
        return
    named = {shards.folder for path in parent.glob("*.ckpt") if (shards := _shards_or_none(path))}
    for folder in marked:
        if folder.name in named:
            continue
        try:
            writer, written = (folder / UNFINISHED).read_text(encoding="utf-8"), (folder / UNFINISHED).stat().st_mtime
        except FileNotFoundError:  # another process of the same folder was faster
            continue
        host, _, pid = writer.partition(" ")  # or nothing, where a disk was full
        here = host == socket.gethostname() and pid.isdecimal()
        mine = here and int(pid) == os.getpid()
        if mine or (here and not psutil.pid_exists(int(pid))) or time.time() - written > ABANDONED_SECONDS:
            remove_shards(folder)
            if not mine:
                rank_zero_info(f"Removed {folder}, which a killed process left.")


def remove_shards(folder: Path) -> None:
    """Remove a folder of shards, the mark last: where this is interrupted, the rest is removed later."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name == UNFINISHED):
        file.unlink()
    folder.rmdir()


@cache
def _checksum(path: Path, size: int, changed: int) -> int:
    """Return a file's checksum: a command looks at the same checkpoint several times."""
    return checksum_of(path)


def _is_own(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def _shards_or_none(path: Path) -> Shards | None:
    try:
        return shards_of(path)
    except OSError:  # it may protect one
        raise
    except Exception:  # damaged, or made to mislead: it protects no folder
        return None
