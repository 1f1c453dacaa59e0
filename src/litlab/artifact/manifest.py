"""``manifest.json``: what is in the folder of an exported model."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from litlab.errors import UserError

MANIFEST, CHECKPOINT, EXAMPLE = "manifest.json", "run.ckpt", "example.npz"
SCRIPT = "use.py"
VERSION = 1  # of the folder: a higher one is for a later litlab
FILES = {"onnx": "model.onnx", "pt2": "model.pt2", "aoti": "model.aoti.pt2", "torchscript": "model.ts"}


def is_exported(folder: str | Path) -> bool:
    """Return whether a folder holds an exported model. A run is never an export, whatever files are in it."""
    is_run = any(os.path.lexists(os.path.join(folder, name)) for name in ("config.yaml", "status.json"))
    return os.path.isfile(os.path.join(folder, MANIFEST)) and not is_run


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a manifest, and compare the folder's files with it.

    Args:
        folder: The folder.

    Raises:
        UserError: There is none, it is damaged, or written by a later version; or a file is missing or damaged.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        version, files = int(manifest["version"]), manifest["files"]
        is_whole = FILES[manifest["format"]] in files and all(Path(name).name == name for name in files)
    except FileNotFoundError as error:
        raise UserError(f"{folder}: it holds no exported model ({MANIFEST} is missing)") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged; export the run again") from error
    if version > VERSION:
        raise UserError(f"{path}: version {version} is for a later litlab than this one ({VERSION}); update it")
    if not is_whole:
        raise UserError(f"{path} is damaged; export the run again")

    for name, checksum in files.items():
        file = folder / name
        if not file.is_file():
            raise UserError(f"{file}: it is missing; copy the whole folder, or export the run again")
        if sha256(file) != checksum:
            raise UserError(f"{file} is damaged: its checksum is not that of {MANIFEST}; export the run again")
    return manifest


def sha256(file: Path) -> str:
    """Return the checksum of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
