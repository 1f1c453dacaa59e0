"""The folders that runs write to."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from litlab.commands.doctor.line import DISK, FAILED, GIB, OK, WARNING, Line, gib
from litlab.errors import UserError
from litlab.runs.folder import ROOT
from litlab.util.files import check_folder

LEAST_FREE = 2 * GIB  # data sets and checkpoints of the reference experiments need less


def disk() -> Iterator[Line]:
    """Look at the folders that runs write to."""
    yield folder("data", Path("data"))
    yield folder("runs", ROOT)
    yield folder("compile cache", Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()))
    temporary = os.environ.get("TMPDIR")
    if temporary and not Path(temporary).is_dir():
        what = f"TMPDIR is {temporary}, which is no folder: other places are used"
        yield Line(DISK, "temporary files", WARNING, what, f"mkdir -p {temporary}, or unset TMPDIR")
    else:
        yield folder("temporary files", Path(temporary or tempfile.gettempdir()))


def folder(name: str, path: Path) -> Line:
    """Write a little into a folder, or where it would be made, and look at how much fits.

    Args:
        name: What the folder is for.
        path: The folder. It need not exist yet.
    """
    place = next(place for place in (path, *path.absolute().parents) if place.is_dir())
    facts = {"path": str(path), "writable": False, "free_gib": None}
    try:
        check_folder(str(path), path)
        facts["free_gib"] = gib(free := shutil.disk_usage(place).free)
        with tempfile.TemporaryFile(dir=place, buffering=0) as stream:
            stream.write(bytes(2**16))
    except UserError as error:
        what, _, remedy = str(error).partition("; ")
        return Line(DISK, name, FAILED, what, remedy, facts)
    except OSError as error:
        what = f"{path}: nothing can be written into {place} ({error.strerror})"
        return Line(DISK, name, FAILED, what, "make room, or use another file system", facts)
    facts["writable"] = True
    what = f"{path}: {gib(free)} GiB free"
    if free >= LEAST_FREE:
        return Line(DISK, name, OK, what, facts=facts)
    return Line(DISK, name, WARNING, what, "make room: data sets and checkpoints need a few GiB", facts)
