"""The folder of a run: which files are in it, and how they are read and written."""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.util.files import write_text

ROOT = Path("lightning_logs")
# What an experiment can't be called: a part such as `last`, which means something else on the
# command line or in a run; `/x` and `~`, which lead elsewhere; a variable; nothing at all.
NO_EXPERIMENT = re.compile(
    r"(?:.*/)?(?:\.\.?|last|best|auto|version_\d+|checkpoints)(?:/.*)?|[/~\s].*|.*\$.*|"
)


class RunFolder:
    """``lightning_logs/<experiment>/version_N/``: everything about one run.

    The folder of a group, ``lightning_logs/<experiment>/seeds_N/``, has the same files, with means
    over its runs, and ``repeat.json``, which says what differs between them (see
    `litlab.runs.groups`).

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
        # What stands behind lightning_logs, however deep; of a folder that was copied, its end
        root, _, name = str(self.path.absolute()).rpartition(f"/{ROOT}/")
        return name if root else "/".join(self.path.parts[-2:])

    def is_run(self) -> bool:
        """Return whether there is a run in the folder; one that failed before its data was ready
        leaves none.
        """
        return os.path.lexists(self.status) and not self.is_group()

    def is_group(self) -> bool:
        """Return whether the folder holds several runs, which differ in one setting."""
        return os.path.lexists(self.group)

    def read_state(self) -> dict[str, Any]:
        """Return what ``status.json`` says, and how a run ended that never wrote its end: killed,
        or failed on a rank.

        Raises:
            UserError: If the file can't be read.
        """
        state = read_record(self.status)
        # The system has released the lock of a process that is gone
        if state.get("status") == "running" and not self.is_locked():
            state["status"] = "killed"
            started = state.get("started")
            # Perhaps by its launcher, because another process had failed. Older tracebacks are of
            # a fit that was resumed since
            failed = started and self.find_failed_rank(datetime.fromisoformat(started).timestamp())
            if failed:
                state |= {"status": "failed", "reason": summarise_traceback(failed)}
        return state

    def find_failed_rank(self, since: float) -> Path | None:
        """Return the traceback of the process above rank zero that failed first after a time."""
        files = [
            file for file in self.path.glob("traceback_rank_*.txt") if file.stat().st_mtime >= since
        ]
        return min(files, key=lambda file: file.stat().st_mtime, default=None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the run while this process trains it. The system releases it, however
        the process ends.

        Raises:
            UserError: If another process holds it.
        """
        from filelock import FileLock, Timeout

        # A second, and not at once: `is_locked` holds it for a moment as well
        try:
            with FileLock(self.path / ".lock", timeout=1):
                yield
        except Timeout:
            raise UserError(
                f"{self.name}: another process trains it; wait until it ends, or stop it"
            ) from None

    def link_checkpoints(self, root: Path) -> None:
        """Keep the checkpoints in a new folder below another one, which runs may share; a link
        leads there.

        Raises:
            UserError: If it can't be written to.
        """
        if os.path.lexists(self.checkpoints):  # the run goes on
            return
        number = 0
        while True:  # runs of another project may have the same names
            folder = root / (f"{self.name}-{number}" if number else self.name)
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
            except OSError as error:
                raise UserError(
                    f"checkpoint.dirpath: {root} can't be written to ({error.strerror}); choose "
                    "another folder"
                ) from error
        self.checkpoints.symlink_to(folder.absolute())

    def is_locked(self) -> bool:
        """Return whether a process trains the run, on this machine or another one."""
        # Shared, so that two that ask don't see each other. NONBLOCK: opening what should be a file
        # and is a FIFO would wait
        try:
            with os.fdopen(os.open(self.path / ".lock", os.O_RDONLY | os.O_NONBLOCK)) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return isinstance(error, BlockingIOError)  # else there is no file, so no process
        return False


def create_run(root: Path, experiment: str) -> RunFolder:
    """Make the folder of a new run, with the next number; processes that start at once get one
    each.

    Raises:
        UserError: If the experiment's name is not valid.
    """
    check_experiment(experiment)
    number = 0
    while True:
        run = RunFolder(root / experiment / f"version_{number}")
        try:
            run.path.mkdir(parents=True)  # succeeds in one of several processes
            return run
        except FileExistsError:
            number += 1


def summarise_traceback(file: Path) -> str:
    """Return which rank has left a traceback, and the line of its exception."""
    # Behind the last frame, the first line at the margin: `ValueError: a bug`
    last_frame = file.read_text(encoding="utf-8").rpartition("\n  File ")[2]
    lines = [line for line in last_frame.splitlines()[1:] if line[:1].strip()]
    return f"rank {file.stem.rpartition('_')[2]}: {lines[0] if lines else 'failed'}"


def check_experiment(name: str) -> None:
    """Refuse an experiment whose runs would not be found, or would be inside another run.

    Raises:
        UserError: If the name is not valid.
    """
    if NO_EXPERIMENT.fullmatch(name) or not name.isprintable():
        raise UserError(
            f"experiment: {name!r} is not a name that a folder of runs can have; choose another one"
        )


def find_owner(path: Path) -> RunFolder | None:
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
    # RecursionError: of lists in lists, thousands deep
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise UserError(f"{path}: it holds no JSON object; restore it, or delete it")
    return content


# What keys of status.json, metrics.json and provenance.json hold, unless they are missing or null.
NUMBER = int | float
TEXTS = ("status", "started", "members", "commit", "test_checkpoint", "val_checkpoint")
NUMBERS = ("seconds", "peak_memory_gib", "epochs", "steps")
BLOCKS = (
    "val", "test", "deviation", "best", "place", "versions", "hardware", "data", "uncommitted",
)  # fmt: skip
LISTS = ("command", "continued")
TYPES = (
    dict.fromkeys(TEXTS, str)
    | dict.fromkeys(NUMBERS, NUMBER)
    | dict.fromkeys(BLOCKS, dict)
    | dict.fromkeys(LISTS, list)
)
BEST = {"monitor": str, "mode": str, "value": NUMBER}
METRICS = {"val": NUMBER, "test": NUMBER, "deviation": NUMBER | None}  # None: of one run


def read_record(path: Path) -> dict[str, Any]:
    """Read ``status.json``, ``metrics.json`` or ``provenance.json``; {} if there is no such file.

    Raises:
        UserError: If it can't be read, or a key holds what no run writes there.
    """
    # Files may come from others or have been edited: a table of runs must not fail in its midst
    content = read_json(path)
    wrong = _find_wrong(content)
    if wrong:
        raise UserError(
            f"{path}: '{wrong}' is not what a run writes there; restore it, or delete it"
        )
    return content


def _find_wrong(content: dict[str, Any]) -> str | None:
    """Return the first key that holds what no run writes there."""
    # What is missing or null is empty
    for key, kind in TYPES.items():
        if not isinstance(content.get(key), kind | None):
            return key
    for key, kind in METRICS.items():
        if not all(isinstance(value, kind) for value in (content.get(key) or {}).values()):
            return key
    if not all(isinstance(word, str) for word in content.get("command") or []):
        return "command"
    if not _is_time(content.get("started")):
        return "started"
    best = content.get("best")
    is_whole = best and all(isinstance(best.get(key), kind) for key, kind in BEST.items())
    if best and not (is_whole and best["mode"] in ("min", "max")):
        return "best"
    # Each fit that went on with the run has left the same keys
    for later in content.get("continued") or []:
        if not isinstance(later, dict) or _find_wrong(later):
            return "continued"
    return None


def _is_time(text: str | None) -> bool:
    """Return whether a text is a time, or missing."""
    try:
        return text is None or datetime.fromisoformat(text).timestamp() > 0
    except (ValueError, OverflowError):
        return False


def read_or_note(
    problems: list[str], reader: Callable[..., Any], *arguments: Any
) -> dict[str, Any]:
    """Return what a reader reads; {} where it refuses the file, and add why to `problems`."""
    try:
        return reader(*arguments)
    except UserError as error:
        problems.append(str(error))
        return {}


# Writing


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as `write_text` does."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
