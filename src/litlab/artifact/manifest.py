"""``manifest.json``: what is in the folder of an exported model."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from litlab.errors import UserError, first_line

MANIFEST, CHECKPOINT, EXAMPLE = "manifest.json", "run.ckpt", "example.npz"
SCRIPT, README = "use.py", "README.md"
VERSION = 1  # of the folder: a higher one is for a later litlab
FILES = {"onnx": "model.onnx", "pt2": "model.pt2", "aoti": "model.aoti.pt2", "torchscript": "model.ts"}
_KINDS = {
    "version": int, "format": str, "kind": str, "inputs": list, "outputs": list, "facts": dict, "files": dict,
    "versions": dict, "run": dict, "limits": dict,
}  # fmt: skip


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
    except FileNotFoundError as error:
        raise UserError(f"{folder}: it holds no exported model ({MANIFEST} is missing)") from error
    except OSError as error:
        raise UserError(f"{path}: it can't be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({first_line(error)}); export the run again") from error
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise UserError(f"{path}: version {version} is for a later litlab than this one ({VERSION}); update it")
    if key := _damaged(manifest):
        raise UserError(f"{path} is damaged (it has no valid {key!r}); export the run again")
    for name, digest in manifest["files"].items():
        file = folder / name
        if not file.is_file():
            raise UserError(f"{file}: it is missing; copy the whole folder, or export the run again")
        try:
            right = sha256(file) == digest
        except OSError as error:
            raise UserError(f"{file}: it can't be read ({error.strerror})") from error
        if not right:
            raise UserError(f"{file} is damaged: its checksum is not that of {MANIFEST}; export the run again")
    return manifest


def others_in(folder: Path) -> list[str]:
    """Return what is in a folder, and no export has put there; all of it where there is no export."""
    try:
        files = {MANIFEST, SCRIPT, README, *json.loads((folder / MANIFEST).read_bytes())["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        files = set()
    return sorted(path.name for path in folder.iterdir() if path.name not in files)


def _damaged(manifest: Any) -> str | None:
    """Return the key of a manifest that is not as it should be."""
    for key, kind in _KINDS.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(key), kind):
            return key
    for key in ("inputs", "outputs"):
        if not manifest[key] or not all(map(_is_tensor, manifest[key])):
            return key
    if manifest["format"] not in FILES:
        return "format"
    if not isinstance(manifest["run"].get("name"), str):
        return "run"
    inside = all(Path(name).name == name for name in manifest["files"])
    return None if inside and FILES[manifest["format"]] in manifest["files"] else "files"


def _is_tensor(entry: Any) -> bool:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "dtype", "what")):
        return False
    return isinstance(entry.get("shape"), list) and all(type(size) in (int, str) for size in entry["shape"])


def sha256(file: Path) -> str:
    """Return the checksum of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
