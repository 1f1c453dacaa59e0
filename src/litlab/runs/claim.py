"""Which run a folder belongs to: run folders, and folders for checkpoints that the user has chosen."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs import lock
from litlab.runs.find import OWNER, noted_owner, run_around
from litlab.runs.folder import COMPILED, RunFolder, read_or_note, write_text

SECONDS_TO_END = 10.0  # for a process that has already written how it ended
_new: list[tuple[Path, Path]] = []  # folders made by this process, each with the topmost folder to remove with it


def hold(run: RunFolder) -> None:
    """Lock the folder of a run for this process, if it is the one that writes there.

    Raises:
        UserError: If another process trains this run, or nothing can be written in the folder.
    """
    if not lock.is_first_process():
        return
    state = read_or_note([], run.state)  # if it is damaged, the lock decides
    running = state.get("status") == "running" and state.get("pid") != os.getpid()
    who = f"process {state.get('pid')}" if running else None
    try:
        if who is None and not lock.hold(run.path, SECONDS_TO_END):
            who = "another process has locked it"
    except OSError as error:
        raise UserError(f"{run.path}: it can't be written to ({error.strerror}); make it writable.") from error
    if who is not None:
        raise UserError(f"{run.name} is still running ({who}); wait until it ends, or stop it.")


def check_experiment(root: Path, name: str) -> None:
    """Refuse an experiment name whose runs would not be found, or would be inside another run.

    Raises:
        UserError: If it is not a valid name.
    """
    parts = Path(name).parts
    taken = next((part for part in parts if re.fullmatch(r"version_\d+|checkpoints", part)), None)
    folders = (root / name, *(root / name).parents)
    around = next((f for f in folders if f != root and root in f.parents and RunFolder(f).is_run()), None)
    if not name.strip() or not parts or ".." in parts or Path(name).is_absolute() or not name.isprintable():
        raise UserError(f"experiment: {name!r} is not a valid folder name in {root}; choose another name.")
    if parts[0] == COMPILED:
        raise UserError(f"experiment: '{name}': {root / COMPILED} holds compiled code; choose another name.")
    if name in ("last", "best", "auto"):
        raise UserError(f"experiment: '{name}' means another run on the command line; choose another name.")
    if "$" in name or name.startswith("~"):  # TensorBoard's logger replaces it
        raise UserError(f"experiment: '{name}' holds a variable; write the name itself.")
    if taken is not None:
        raise UserError(f"experiment: '{name}': folders called '{taken}' belong to runs; choose another name.")
    if around is not None:
        raise UserError(f"experiment: '{name}' is inside the run {around}; choose another name.")


def new_run(root: Path, experiment: str) -> RunFolder:
    """Make and lock the folder of a new run; processes that start at once get one each.

    One that never becomes a run is removed by `release`.

    Raises:
        UserError: If the name is not valid, or the folder can't be made.
    """
    check_experiment(root, experiment)
    folder = root / experiment
    try:
        numbers = [re.fullmatch(r"version_(\d+)", path.name) for path in folder.iterdir()] if folder.exists() else []
        number = max((int(found[1]) + 1 for found in numbers if found), default=0)
        while True:
            path = folder / f"version_{number}"
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:
                if not folder.is_dir():
                    raise
                number += 1
        lock.hold(path)
    except OSError as error:
        name = error.filename or folder
        raise UserError(f"experiment: {name} can't be made ({error.strerror}); choose another name.") from error
    _new.append((path, root))
    return RunFolder(path)


def own_folder(folder: Path) -> None:
    """Make and lock the folder of a new run that the user has chosen.

    Raises:
        UserError: If there is a run already, or the folder can't be made.
    """
    if RunFolder(folder).is_run():
        raise UserError(
            f"trainer.logger: {folder} already holds a run; leave the logger's version out, or resume the run by "
            f"--resume {folder}."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"trainer.logger: {folder} can't be made ({error.strerror}); choose another one.") from error
    hold(RunFolder(folder))
    _new.append((folder, folder))


def own_checkpoints(callbacks: Iterable[Any], run: RunFolder, resumes: bool) -> None:
    """Claim the folders of checkpoints that the user chose for a run: a second run would overwrite the files there.

    Args:
        callbacks: The callbacks that write checkpoints.
        run: The run.
        resumes: Whether it continues with what is there.

    Raises:
        UserError: If one of the folders belongs to another run, or can't be written to.
    """
    own = run.path.resolve()
    for named in [name for callback in callbacks if (name := getattr(callback, "dirpath", None))]:
        folder = Path(named).resolve()
        if "://" in str(named) or own in folder.parents:
            continue
        advice = f"choose another folder, such as {Path(named) / run.name}, or leave it out"
        if around := run_around(folder / "any"):
            raise UserError(f"checkpoint.dirpath: {named} is inside the run {around.name}; {advice}.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock.folder_lock(folder):
                owner = noted_owner(folder)
                if owner == own:
                    continue
                kept = next(folder.glob("*.ckpt"), None)
                moved = resumes and (owner is None or not owner.is_dir())  # the folder is this run's: it was moved
                if (kept is not None and not moved) or (owner is not None and lock.is_held_elsewhere(owner)):
                    whose = owner or f"another run ({kept.name if kept else ''})"
                    raise UserError(f"checkpoint.dirpath: {named} holds the checkpoints of {whose}; {advice}.")
                write_text(folder / OWNER, str(own))
        except OSError as error:
            raise UserError(
                f"checkpoint.dirpath: {named} can't be written to ({error.strerror}); choose another one."
            ) from error


def release() -> None:
    """Release the locks; remove the folders of runs that never began."""
    while _new:
        folder, highest = _new.pop()
        files = list(folder.iterdir()) if folder.is_dir() else []
        if not files or not all(path.name == lock.NAME or _is_own_event_file(path) for path in files):
            continue
        for path in files:
            path.unlink()
        with suppress(OSError):  # one that is not empty stays
            for path in (folder, *folder.parents):
                path.rmdir()
                if path == highest:
                    break
    lock.release()


def _is_own_event_file(path: Path) -> bool:
    """Return whether this process has written a file of TensorBoard's, which says nothing where there is no config."""
    return path.name.startswith("events.out.tfevents.") and f".{os.getpid()}." in path.name
