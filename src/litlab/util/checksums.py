"""Checksums, which tell whether files are still what was written.

They are CRC-32: the fastest of the standard library, and what each record of a checkpoint, which is
a zip file, has anyway. They find damage, not forgery. In a process a file is read once for that,
until it changes.
"""

import json
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZipFile

CHECKSUMS = "checksums.json"  # in a folder: the checksum of each of its files, by name


def once_per_file(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Let a function be called once for a file, until the file changes."""
    remembered = lru_cache(lambda path, *_: function(path))

    def call(path: Path) -> Any:
        state = path.stat()
        return remembered(path.resolve(), state.st_size, state.st_mtime_ns)

    return call


@once_per_file
def compute_checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    checksum = 0
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def write_checksums(folder: Path, leave_out: str = "") -> None:
    """Write the checksums of the files in a folder into it, but for one that people may change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = {path.relative_to(folder).as_posix() for path in files} - {CHECKSUMS, leave_out}
    checksums = {name: compute_checksum(folder / name) for name in sorted(names)}
    (folder / CHECKSUMS).write_text(json.dumps(checksums, indent=2), encoding="utf-8")


def find_damaged(folder: Path) -> str | None:
    """Return the name of a file that is not what `write_checksums` has read; None if all are."""
    damaged = CHECKSUMS
    try:
        checksums = json.loads((folder / CHECKSUMS).read_bytes())
        for damaged, checksum in checksums.items():
            if compute_checksum(folder / damaged) != checksum:
                return damaged
    except (OSError, ValueError):
        return damaged
    return None


@once_per_file
def check_archive(path: Path) -> None:
    """Check what torch.save has written, as torch (2.15) doesn't.

    Raises:
        ValueError: If it is damaged.
    """
    with path.open("rb") as stream:
        check_records(stream)


def check_records(stream: BinaryIO) -> None:
    """Check each record of a zip file.

    Raises:
        ValueError: If one is damaged, or it is no such file.
    """
    try:
        with ZipFile(stream) as archive:
            damaged = archive.testzip()
    except Exception as error:  # of many kinds, as the bytes decide
        raise ValueError("it is no whole zip file, as torch.save writes it") from error
    if damaged is not None:
        raise ValueError(f"{damaged} is damaged")
