"""The folder of a run: which files are in it, and how they are read and written."""

import itertools
import json
import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from litlab.errors import UserError, first_line
from litlab.runs.lock import is_first_process
from litlab.runs.schema import wrong_entry
from litlab.util.files import write_atomically

ROOT = Path("lightning_logs")
COMPILED = "compile_cache"  # folder in ROOT of what torch.compile has made: code, and no run
STATUS_LOCK = threading.Lock()  # of a process's runs: a rank that dies is noticed in a thread of its own
NO_CHECKPOINT = "no checkpoint to resume from"  # in the message on a run that has none


@dataclass(frozen=True)
class RunFolder:
    """``lightning_logs/<experiment>/version_N/``: everything about one run.

    Args:
        path: The folder. It need not exist yet.
    """

    path: Path

    @property
    def name(self) -> str:
        """The name of the run in tables: ``mine/version_3``."""
        parts = self.path.absolute().parts
        if ROOT.name in parts[:-2]:  # an experiment may have folders in its name
            return "/".join(parts[len(parts) - parts[::-1].index(ROOT.name) :])
        return "/".join(parts[-2:])

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def status(self) -> Path:
        """Whether the run is running, how it ended, and why."""
        return self.path / "status.json"

    @property
    def metrics(self) -> Path:
        """The results of the run."""
        return self.path / "metrics.json"

    @property
    def provenance(self) -> Path:
        """What the run was made from: command, commit, versions, hardware, data."""
        return self.path / "provenance.json"

    def lock(self):
        import contextlib

        return contextlib.nullcontext()

    @property
    def traceback(self) -> Path:
        return self.path / "traceback.txt"

    def is_run(self) -> bool:
        """Return whether there is a run in the folder; one that failed before its data was ready leaves none."""
        return os.path.isfile(self.config) or os.path.isfile(self.status) or os.path.isdir(self.checkpoints)

    def state(self) -> dict[str, Any]:
        """Return what ``status.json`` says, checked against the process that wrote it.

        Returns:
            The file's content, {} where there is none. ``status`` is ``killed`` for a run that never wrote its end
            though its process is gone, and ``running?`` for one on another host, where it can't be checked. For one
            that was killed after its training, ``reason`` says that its test is missing.

        Raises:
            UserError: If the file is damaged.
        """
        state = read_json(self.status)
        if state.get("status") == "running":
            if state.get("host") != socket.gethostname():
                state["status"] = "running?"
            elif not _is_alive(state):
                state["status"] = "killed"
                if state.get("test") == "pending":
                    state["reason"] = "after the fit, before its test was done: `fit --resume` tests it"
        return state

    def is_incomplete(self, test_wanted: bool) -> bool:
        """Return whether a resumed fit has something left to do besides training: its metrics, or its test.

        Args:
            test_wanted: Whether a fit ends with a test.

        Raises:
            UserError: If a file of the run can't be read.
        """
        state, metrics = read_or_set_aside(self.status), read_or_set_aside(self.metrics)
        tested = state.get("test") in ("done", "none") or (metrics.get("test") and state.get("test") is None)
        return not metrics or (test_wanted and not tested)

    def when(self) -> datetime:
        """Return when the run was last started, in local time; if that is not known, when its folder was made."""
        try:
            return datetime.fromisoformat(read_json(self.status)["started"]).astimezone()
        except (UserError, KeyError, TypeError, ValueError, OverflowError):  # `runs` reports a damaged file
            for path in (self.config, self.path):
                if os.path.exists(path):
                    return datetime.fromtimestamp(path.stat().st_mtime).astimezone()
            return datetime.now().astimezone()  # it was deleted just now


def root_of(trainer: dict[str, Any]) -> Path:
    """Return the folder of all runs, by the section ``trainer`` of a config."""
    return Path(trainer.get("default_root_dir") or ".") / ROOT


class DamagedFile(UserError):
    """A file of a run is not what the run wrote.

    Args:
        path: The file.
        problem: What is wrong with it.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} is damaged ({problem}); delete it, or restore it.")
        self.problem = problem


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of a run.

    Returns:
        Its content, {} if there is no such file. Known entries have their type, or are null.

    Raises:
        UserError: If it can't be read or holds something else.
    """
    if path.exists() and not path.is_file():
        raise DamagedFile(path, "it is not a file")
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # finds half a character, which can't be shown
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{path}: it can't be read ({error.strerror}); make it readable.") from error
    except (ValueError, RecursionError) as error:  # of JSON or of UTF-8
        raise DamagedFile(path, first_line(error)) from error
    if not isinstance(content, dict):
        raise DamagedFile(path, "it holds no JSON object")
    if problem := wrong_entry(path.name, content):
        raise DamagedFile(path, problem)
    return content


def read_or_note(problems: list[str], read: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return what a function reads; {} where it raises a `UserError`, whose message is added to the problems."""
    try:
        return read(*arguments)
    except UserError as error:
        problems.append(str(error))
        return {}


def read_or_set_aside(path: Path) -> dict[str, Any]:
    """Read a file of a run that is resumed; a damaged one is renamed, with a warning.

    Returns:
        As `read_json`; {} for a damaged one.

    Raises:
        UserError: If it can't be read.
    """
    try:
        return read_json(path)
    except DamagedFile as error:
        set_aside(path, error.problem)
        return {}


def set_aside(path: Path, problem: str) -> None:
    """Rename a damaged file, with a warning; only the first of several processes does."""
    if not is_first_process():
        return
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in itertools.count())
    aside = next(name for name in names if not os.path.lexists(name))
    try:
        path.rename(aside)
    except OSError as error:
        raise UserError(f"{path} is damaged ({problem}) and can't be renamed ({error.strerror}); remove it.") from error
    print(f"warning: {path} is damaged ({problem}): renamed to {aside.name}, the run continues.", file=sys.stderr)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file as `write_bytes` does; numbers that are not finite become null."""
    write_text(path, json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(path, text.encode(errors="surrogateescape"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new. Its folder is made if need be.

    Raises:
        UserError: If it can't be written, as with a full disk; the old content stays.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda stream: stream.write(content))
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}.") from error


def _is_alive(state: dict[str, Any]) -> bool:
    """Return whether the process that wrote the status still exists, and is not a later one that got its number."""
    import psutil  # not every reader has a running run

    try:
        process = psutil.Process(state["pid"])
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        born = datetime.fromtimestamp(process.create_time()).astimezone()
        started = datetime.fromisoformat(state["started"])
    except psutil.AccessDenied:  # it exists, but is another user's
        return True
    except (psutil.NoSuchProcess, KeyError, TypeError, ValueError, OverflowError):
        return False
    return born < started.astimezone() + timedelta(minutes=1)  # clocks are set now and then


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def new_run(root, experiment):
    from litlab.runs.claim import new_run as make

    return make(root, experiment)
