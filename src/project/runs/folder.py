"""The folder of a run: which files are in it, reading and writing them, and finding it by what the user types."""

import json
import math
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from project.errors import UserError

ROOT = Path("lightning_logs")


@dataclass(frozen=True)
class RunFolder:
    """``lightning_logs/<experiment>/version_N/``: everything about one run.

    Args:
        path: The folder. It need not be there yet.
    """

    path: Path

    @property
    def name(self) -> str:
        """What the run is called in tables: ``cifar/version_3``."""
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
        """Whether the run goes on, ended, and why."""
        return self.path / "status.json"

    @property
    def metrics(self) -> Path:
        """What the run came to."""
        return self.path / "metrics.json"

    @property
    def provenance(self) -> Path:
        """What the run was made from: command, commit, versions, hardware, data."""
        return self.path / "provenance.json"

    def is_run(self) -> bool:
        """Whether there is a run in the folder: a run that failed before it had its data leaves none."""
        return self.config.is_file() or self.status.is_file() or self.checkpoints.is_dir()

    def state(self) -> dict[str, Any]:
        """What ``status.json`` says, checked against the process that wrote it.

        Returns:
            The file's content, {} where there is none. ``status`` is ``killed`` for a run that never wrote its end
            though its process is gone, and ``running?`` for one on another host, where nobody can tell.

        Raises:
            UserError: If the file is damaged.
        """
        state = read_json(self.status)
        if state.get("status") == "running":
            if state.get("host") != socket.gethostname():
                state["status"] = "running?"
            elif not _is_alive(state):
                state["status"] = "killed"
        return state

    def when(self) -> datetime:
        """When the run was last started, in local time; for a run that didn't note it, when its folder was made."""
        try:
            return datetime.fromisoformat(read_json(self.status)["started"]).astimezone()
        except (UserError, KeyError, TypeError, ValueError):  # the ledger reports a damaged file, here it is an old one
            oldest = self.config if self.config.is_file() else self.path
            return datetime.fromtimestamp(oldest.stat().st_mtime).astimezone()


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file of a run.

    Returns:
        Its content, or {} if there is no such file: runs of old have none.

    Raises:
        UserError: If it can't be read or holds something else, as one line that names it.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    except ValueError as error:  # of JSON or of UTF-8
        raise UserError(f"{path} is damaged ({error}): delete it, or restore it.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged (it holds no JSON object): delete it, or restore it.")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a file of a run as a whole: whoever reads it sees the old content or the new.

    Args:
        path: The file; its folder is made if need be.
        content: What to write. Numbers that are not finite become null, as JSON has no word for them.

    Raises:
        UserError: If it can't be written, as with a full disk; the old content stays.
    """
    write_text(path, json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file as a whole.

    Raises:
        UserError: If it can't be written, as with a full disk; the old content stays.
    """
    write_bytes(path, text.encode(errors="surrogateescape"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file as a whole: a temporary file beside it, on the disk, then renamed.

    Raises:
        UserError: If it can't be written, as with a full disk; the old content stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}.") from error
    finally:
        if temporary.is_file():
            temporary.unlink()


def all_runs(root: Path = ROOT) -> list[RunFolder]:
    """All runs below a folder, the newest first."""
    return sorted(_walk(root), key=lambda run: (run.when(), _natural(run)), reverse=True)


def find_run(text: str, root: Path = ROOT) -> RunFolder:
    """Finds a run by what the user typed.

    Args:
        text: ``last`` (the newest run), ``best`` (of the newest run's experiment, the run with the best value of the
            metric that it monitors), a run folder, a checkpoint in it, or an experiment, which stands for its newest
            run. Folders may be given as they are or from ``lightning_logs`` on: ``cifar``, ``cifar/version_3``.
        root: Where the runs are.

    Raises:
        UserError: If there is no such run; names the nearest.
    """
    if text in ("last", "best"):
        runs = all_runs(root)
        if not runs:
            raise UserError(f"{text}: there are no runs in {root} yet.")
        return runs[0] if text == "last" else _best(runs)
    for path in (Path(text), root / text):
        if path.is_file():
            owner = owner_of(path)
            if owner is None:
                raise UserError(f"{text} lies in no run folder: give a checkpoint of a run, or the run itself.")
            return owner
        # An empty text, or one that leads out of the experiments, must not become the newest of all runs by accident.
        if path.is_dir() and text.strip("./"):
            if RunFolder(path).is_run():
                return RunFolder(path)
            if runs := all_runs(path):
                return runs[0]
    raise UserError(f"there is no run '{text}': {_hint(text, root)}")


def owner_of(path: Path) -> RunFolder | None:
    """The run that a file lies in; None for one that lies in none."""
    return next((RunFolder(folder) for folder in path.absolute().parents if RunFolder(folder).is_run()), None)


def _best(runs: list[RunFolder]) -> RunFolder:
    """Of runs, the newest first: the best one of the newest one's experiment."""
    alike = [run for run in runs if run.path.parent == runs[0].path.parent]
    found = {run: read_json(run.metrics).get("best") or {} for run in alike}
    monitored = next(
        ((best["monitor"], best["mode"]) for best in found.values() if best.get("value") is not None), None
    )
    if monitored is None:
        raise UserError(f"best: no run of {runs[0].path.parent} has monitored a metric yet.")
    values = {run: best["value"] for run, best in found.items() if best.get("value") is not None}
    values = {run: value for run, value in values.items() if (found[run]["monitor"], found[run]["mode"]) == monitored}
    return (max if monitored[1] == "max" else min)(values, key=values.__getitem__)


def _hint(text: str, root: Path) -> str:
    runs = [run.path.relative_to(root).as_posix() for run in all_runs(root)]
    if not runs:
        return f"there are no runs in {root} yet."
    experiments = list(dict.fromkeys(run.rpartition("/")[0] for run in runs))
    wanted = text.strip("/").removeprefix(f"{root.as_posix()}/")
    if nearest := get_close_matches(wanted, ["last", *experiments, *runs], n=3):
        return f"did you mean {' or '.join(repr(name) for name in nearest)}?"
    return f"the experiments in {root} are {', '.join(sorted(experiments))}; `python -m project runs` lists the runs."


def _walk(folder: Path) -> Iterator[RunFolder]:
    if not folder.is_dir():
        return
    for child in sorted(folder.iterdir()):
        if child.is_dir():
            if RunFolder(child).is_run():
                yield RunFolder(child)
            else:
                yield from _walk(child)


def _natural(run: RunFolder) -> tuple[str, int]:
    number = run.path.name.removeprefix("version_")
    return str(run.path.parent), int(number) if number.isdecimal() else -1


def _is_alive(state: dict[str, Any]) -> bool:
    """Whether the process that wrote the status is still there, and not a later one that got its number."""
    import psutil  # not every reader has a running run

    try:
        process = psutil.Process(state["pid"])
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        born = datetime.fromtimestamp(process.create_time()).astimezone()
        started = datetime.fromisoformat(state["started"])
    except psutil.AccessDenied:  # it is there, but another user's
        return True
    except (psutil.NoSuchProcess, KeyError, TypeError, ValueError):
        return False
    return born < started.astimezone() + timedelta(minutes=1)  # clocks are set now and then


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
