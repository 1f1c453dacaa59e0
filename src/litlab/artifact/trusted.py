"""Which exports may be loaded, and what they may name: in the formats of torch, they are code.

What this user has exported, or has trusted once, is remembered by the SHA-256 of its graph, in a
folder of the user's: whoever made an export can change all that is in it, but not that.
"""

import hashlib
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from litlab.artifact.artifact import FILES, MANIFEST, check_whole, read_manifest
from litlab.cli.classes import find_classes
from litlab.data.serving import Serving
from litlab.errors import UserError, first_line
from litlab.util.team import package


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
            "if you trust whoever made it, add --trust once"
        )


def load_serving(folder: Path, manifest: dict[str, Any]) -> Serving:
    """Make what reads and answers for an export, of the class that its manifest names.

    Raises:
        UserError: It is no `Serving` of litlab or of the team's package, or the facts are those of
            another one.
    """
    module, _, name = str(manifest.get("serving")).rpartition(".")
    # Somebody else may have written it: only what holds such a class is imported
    found: Any = None
    if module in find_classes(package()).get(name, []):
        found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, Serving)):
        raise UserError(
            f"{folder / MANIFEST}: {module}.{name} is not a Serving in litlab or {package()}, and "
            "others are not loaded; move the class into that package, and export the run again"
        )
    files = {file.name: file.read_text("utf-8") for file in folder.glob("*.json")}
    try:
        return found.load(manifest["facts"], files)
    except Exception as error:  # of many kinds: whatever a class makes of facts of another one
        raise UserError(
            f"{folder / MANIFEST}: its facts do not fit {name} ({first_line(error)}); export the "
            "run again"
        ) from error


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
