"""The folder of a run: which files are in it, and how they are read and written.

A run may come from somebody else. Its files are read only if they are regular files, and nothing is written through a
link in its folder.
"""

import itertools
import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lightning_utilities.core.rank_zero import rank_zero_only  # Lightning's own, without importing all of it

from litlab.errors import UserError, first_line
from litlab.util.files import write_atomically

ROOT = Path("lightning_logs")
COMPILED = "compile_cache"  # folder in ROOT of what torch.compile has made: code, and no run
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # where Lightning looks, in this order
LARGEST = 2**26  # bytes of a file that is read
# Parts that the name of an experiment can't have: they mean something else on the command line, or in a run.
NO_EXPERIMENT = re.compile(rf"\.\.|/|last|best|auto|version_\d+|checkpoints|{COMPILED}|~.*|.*\$.*|\s*")


@dataclass(frozen=True)
class RunFolder:
    """``lightning_logs/<experiment>/version_N/``: everything about one run.

    The folder of a group, ``lightning_logs/<experiment>/seeds_N/``, has the same files, with means over its runs, and
    ``repeat.json``, which says what differs between them (see `litlab.commands.repeat`).

    Args:
        path: The folder. It need not exist yet.
    """

    path: Path

    @property
    def name(self) -> str:
        """The name of the run in tables: ``mine/version_3``."""
        parts = self.path.absolute().parts
        start = len(parts) - parts[::-1].index(ROOT.name) if ROOT.name in parts else -2
        return "/".join(parts[start:])

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.json"

    @property
    def provenance(self) -> Path:
        return self.path / "provenance.json"

    @property
    def traceback(self) -> Path:
        return self.path / "traceback.txt"

    @property
    def group(self) -> Path:
        return self.path / "repeat.json"

    def is_run(self) -> bool:
        """Return whether there is a run in the folder; one that failed before its data was ready leaves none."""
        return os.path.isfile(self.status) and not self.is_group()

    def is_group(self) -> bool:
        """Return whether the folder holds several runs, which differ in one setting."""
        return os.path.isfile(self.group)

    def state(self) -> dict[str, Any]:
        """Return what ``status.json`` says, checked against the process that wrote it.

        Returns:
            The file's content, {} where there is none. ``status`` is ``killed`` for a run that never wrote its end
            though its process is gone, and ``running?`` for one on another host, where it can't be checked.

        Raises:
            UserError: If the file can't be read.
        """
        state = read_json(self.status)
        if state.get("status") == "running":
            is_here = state.get("host") == socket.gethostname()
            state["status"] = "running?" if not is_here else "running" if _is_alive(state) else "killed"
        return state

    def when(self) -> datetime:
        """Return when the run was last started, in local time; if that is not known, when its status was written."""
        try:
            return datetime.fromisoformat(read_json(self.status)["started"]).astimezone()
        except (UserError, KeyError, TypeError, ValueError, OverflowError):
            return datetime.fromtimestamp(os.lstat(self.status).st_mtime).astimezone()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the run while this process trains it. The system releases it, however the process ends.

        Raises:
            UserError: If another process holds it.
        """
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.path / ".lock", timeout=1):
                yield
        except Timeout:
            raise UserError(f"{self.name}: another process trains it; wait until it ends, or stop it") from None


def new_run(root: Path, experiment: str) -> RunFolder:
    """Make the folder of a new run, with the next number; processes that start at once get one each.

    Raises:
        UserError: If the experiment's name is not valid.
    """
    check_experiment(experiment)
    for number in itertools.count():
        run = RunFolder(root / experiment / f"version_{number}")
        try:
            run.path.mkdir(parents=True)
            return run
        except FileExistsError:
            continue
    raise AssertionError


def check_experiment(name: str) -> None:
    """Refuse an experiment whose runs would not be found, or would be inside another run.

    Raises:
        UserError: If the name is not valid.
    """
    parts = Path(name).parts
    if not parts or not name.isprintable() or any(map(NO_EXPERIMENT.fullmatch, parts)):
        raise UserError(f"experiment: {name!r} is not a name that a folder of runs can have; choose another one")


def owner_of(path: Path) -> RunFolder | None:
    """Return the run whose folder a file is in, if any."""
    folders = (*path.parents, *path.absolute().parents)  # as it was typed, where that is enough
    return next((RunFolder(folder) for folder in folders if RunFolder(folder).is_run()), None)


def is_first_process() -> bool:
    """Return whether this is the process of the run that writes files, and not one launched as a further rank.

    Unlike Lightning's rank, this is known before a Trainer exists, and in a forked process.
    """
    node = os.environ.get("GROUP_RANK") or os.environ.get("NODE_RANK") or "0"  # of torchrun, of Lightning
    ranks = [os.environ[name] for name in RANKS if name in os.environ]
    return node == "0" == (ranks or [str(getattr(rank_zero_only, "rank", 0))])[0]


# Reading


def read_plain(path: Path) -> bytes:
    """Read a regular file: a pipe or a device would never end, and a link may lead anywhere.

    Raises:
        OSError: If it can't be read, or is something else.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
        raise OSError("it is no regular file, or huge")
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; {} if there is no such file.

    Raises:
        UserError: If it can't be read, or holds something else.
    """
    try:
        content = json.loads(read_plain(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: it can't be read ({first_line(error)}); restore it, or delete it") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: it holds no JSON object; restore it, or delete it")
    return content


# Writing


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as `write_text` does."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old content or the new. Its folder is made if need be.

    Raises:
        UserError: If it can't be written, as with a full disk, or would be written through a link in a run.
    """
    check_links(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda stream: stream.write(text.encode(errors="surrogateescape")))
    except OSError as error:
        raise UserError(f"{path}: it can't be written ({error.strerror}); make room, or make it writable") from error


def check_links(path: Path) -> None:
    """Refuse to write to a link, or through one that is inside a run's folder.

    Raises:
        UserError: If the file, or a folder of the run around it, is a link.
    """
    for part in (path, *path.absolute().parents):
        if part.name == ROOT.name:  # which may be a link to a larger disk
            return
        if part.is_symlink() and (part == path or owner_of(part) is not None):
            raise UserError(f"{part}: it is a link, and nothing is written through links; remove it")


def _is_alive(state: dict[str, Any]) -> bool:
    """Return whether the process that wrote the status still exists, and is not a later one that got its number."""
    import psutil  # not every reader has a running run

    try:
        process = psutil.Process(state["pid"])
        started = datetime.fromisoformat(state["started"]).timestamp()
        is_same = process.create_time() < started + 60  # clocks are set now and then
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, KeyError, TypeError, ValueError, OverflowError):
        return False
