"""The folder of a run: which files are in it, and how they are read and written."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.util.files import check_folder, write_atomically

ROOT = Path("lightning_logs")
# A part that a name can't have: it means something else on the command line, or in a run. `/x` and `~` lead elsewhere.
NO_EXPERIMENT = re.compile(r"(?:.*/)?(?:\.\.?|last|best|auto|version_\d+|checkpoints)(?:/.*)?|[/~\s].*|.*\$.*|")


class RunFolder:
    """``lightning_logs/<experiment>/version_N/``: everything about one run.

    The folder of a group, ``lightning_logs/<experiment>/seeds_N/``, has the same files, with means over its runs, and
    ``repeat.json``, which says what differs between them (see `litlab.commands.repeat`).

    Args:
        path: The folder. It need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.checkpoints = path / "checkpoints"
        self.status = path / "status.json"
        self.metrics = path / "metrics.json"
        self.provenance = path / "provenance.json"
        self.traceback = path / "traceback.txt"
        self.group = path / "repeat.json"

    @property
    def name(self) -> str:
        """The name of the run in tables: ``mine/version_3``."""
        root, _, name = str(self.path.absolute()).rpartition(f"/{ROOT}/")
        return name if root else "/".join(self.path.parts[-2:])

    def is_run(self) -> bool:
        """Return whether there is a run in the folder; one that failed before its data was ready leaves none."""
        return os.path.isfile(self.status) and not self.is_group()

    def is_group(self) -> bool:
        """Return whether the folder holds several runs, which differ in one setting."""
        return os.path.isfile(self.group)

    def state(self) -> dict[str, Any]:
        """Return what ``status.json`` says; ``status`` is ``killed`` for a run that never wrote its end and is over.

        Raises:
            UserError: If the file can't be read.
        """
        state = read_json(self.status)
        if state.get("status") == "running" and not self._is_locked():
            state["status"] = "killed"
        return state

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

    def link_checkpoints(self, root: Path) -> None:
        """Keep the checkpoints in another folder, below one that other runs may use too, behind a link.

        Raises:
            UserError: If it can't be written to.
        """
        if os.path.lexists(self.checkpoints):  # the run goes on
            return
        check_folder("checkpoint.dirpath", root)
        number = 0
        while True:  # runs of another project may have the same names
            folder = root / (f"{self.name}-{number}" if number else self.name)
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
        self.checkpoints.symlink_to(folder.absolute())

    def _is_locked(self) -> bool:
        """Return whether a process trains the run, on this machine or another one."""
        try:
            with os.fdopen(os.open(self.path / ".lock", os.O_RDONLY | os.O_NONBLOCK)) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False


def new_run(root: Path, experiment: str) -> RunFolder:
    """Make the folder of a new run, with the next number; processes that start at once get one each.

    Raises:
        UserError: If the experiment's name is not valid.
    """
    check_experiment(experiment)
    number = 0
    while True:
        run = RunFolder(root / experiment / f"version_{number}")
        try:
            run.path.mkdir(parents=True)
            return run
        except FileExistsError:
            number += 1


def check_experiment(name: str) -> None:
    """Refuse an experiment whose runs would not be found, or would be inside another run.

    Raises:
        UserError: If the name is not valid.
    """
    if NO_EXPERIMENT.fullmatch(name) or not name.isprintable():
        raise UserError(f"experiment: {name!r} is not a name that a folder of runs can have; choose another one")


def owner_of(path: Path) -> RunFolder | None:
    """Return the run whose folder a file is in, if any."""
    folders = (*path.parents, *path.absolute().parents)  # as it was typed, where that is enough
    return next((run for run in map(RunFolder, folders) if run.is_run()), None)


# Reading


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; {} if there is no such file.

    Raises:
        UserError: If it can't be read, or holds something else.
    """
    if not os.path.lexists(path):
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        content = None
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
        UserError: If it can't be written, as with a full disk.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda stream: stream.write(text.encode(errors="surrogateescape")))
    except OSError as error:
        raise UserError(f"{path}: it can't be written ({error.strerror}); make room, or make it writable") from error
