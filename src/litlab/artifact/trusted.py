"""Which exports may be loaded: in the formats of torch, they are code.

What this user has exported, or has trusted once, is remembered by the SHA-256 of its graph, in a
folder of the user's: whoever made an export can change all that is in it, but not that.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from litlab.artifact.artifact import FILES, check_whole, read_manifest
from litlab.errors import UserError


def check_trusted(folder: Path, trust: bool) -> None:
    """Check an export before it is loaded.

    Args:
        folder: The export.
        trust: Whether the user says that it may be loaded.

    Raises:
        UserError: If it is damaged, or code of unknown origin.
    """
    form = read_manifest(folder)["format"]
    check_whole(folder)
    if form == "onnx":
        return
    if trust:
        remember(folder)
    elif not _mark_of(folder).exists():
        raise UserError(
            f"{folder}: it was not exported here, and {form} is code that runs with your rights; "
            "if you trust whoever made it, add --trust, once"
        )


def remember(folder: Path) -> None:
    """Remember that an export may be loaded."""
    mark = _mark_of(folder)
    with suppress(OSError):  # a home that can't be written: `serve` asks again
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _mark_of(folder: Path) -> Path:
    with (folder / FILES[read_manifest(folder)["format"]]).open("rb") as graph:
        digest = hashlib.file_digest(graph, "sha256").hexdigest()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "litlab/trusted_exports", digest)
