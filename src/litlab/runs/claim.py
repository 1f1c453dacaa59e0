"""Folders that belong to one run: its own, and one for its checkpoints that the user chose."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.runs import lock
from litlab.runs.find import OWNER, noted_owner, run_around
from litlab.runs.folder import RunFolder, write_text

SECONDS_TO_END = 10.0  # for a process that has written its end already
_new: list[tuple[Path, Path]] = []  # folders that this process has made, and the highest that goes with them


def hold(run: RunFolder) -> None:
    """Locks the folder of a run for this process, if it is the one that writes there.

    Raises:
        UserError: If another process trains this run, or nothing can be written in the folder.
    """
    if not lock.is_first_process():
        return
    try:
        state = run.state()
    except UserError:  # a damaged status: the lock tells
        state = {}
    if state.get("status") == "running" and state.get("pid") != os.getpid():
        raise UserError(f"{run.name} is still running (process {state['pid']}): wait for its end, or stop it.")
    try:
        held = lock.hold(run.path, SECONDS_TO_END)
    except OSError as error:
        raise UserError(f"{run.path} can't be written: {error.strerror}.") from error
    if not held:
        raise UserError(f"{run.name} is still running (another process has locked it): wait for its end, or stop it.")


def check_experiment(root: Path, name: str) -> None:
    """Refuses a name of an experiment whose runs would not be found, or lie in another run.

    Raises:
        UserError: If it is not such a name.
    """
    parts = Path(name).parts
    if not name.strip() or not parts or ".." in parts or Path(name).is_absolute() or not name.isprintable():
        raise UserError(f"experiment: {name!r} is not a valid folder name in {root}.")
    if name in ("last", "best", "auto"):
        raise UserError(f"experiment: '{name}' means another run on the command line: choose another name.")
    if "$" in name or name.startswith("~"):  # TensorBoard's logger puts something else there
        raise UserError(f"experiment: '{name}' holds a variable: write the name itself.")
    for part in parts:
        if re.fullmatch(r"version_\d+|checkpoints", part):
            raise UserError(f"experiment: '{name}': folders called '{part}' belong to runs: choose another name.")
    for folder in (root / name, *(root / name).parents):
        if folder != root and root in folder.parents and RunFolder(folder).is_run():
            raise UserError(f"experiment: '{name}' lies in the run {folder}: choose another name.")


def new_run(root: Path, experiment: str) -> RunFolder:
    """Makes and locks the folder of a new run: of processes that start at once, each gets its own.

    One that never becomes a run is removed by `release`.

    Raises:
        UserError: If the name is none, or the folder can't be made.
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
        raise UserError(f"experiment: {error.filename or folder} can't be made: {error.strerror}.") from error
    _new.append((path, root))
    return RunFolder(path)


def own_folder(folder: Path) -> None:
    """Makes and locks the folder of a new run that the user has named himself.

    Raises:
        UserError: If there is a run already, or the folder can't be made.
    """
    if RunFolder(folder).is_run():
        raise UserError(
            f"trainer.logger: {folder} holds a run already: leave the logger's version out, or go on with the run by "
            f"--resume {folder}."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"trainer.logger: {folder} can't be made: {error.strerror}.") from error
    hold(RunFolder(folder))
    _new.append((folder, folder))


def own_checkpoints(callbacks: Iterable[Any], run: RunFolder, resumes: bool) -> None:
    """Makes folders of checkpoints that the user chose the run's: a second run would overwrite the files there.

    Args:
        callbacks: Those that write checkpoints.
        run: The run.
        resumes: Whether it goes on with what is there.

    Raises:
        UserError: If a folder belongs to another run, or holds checkpoints of nobody knows which.
    """
    own = run.path.resolve()
    for callback in callbacks:
        named = getattr(callback, "dirpath", None)
        if named is None or "://" in str(named) or own in Path(named).resolve().parents:
            continue
        folder = Path(named).resolve()
        refusal = (
            f"checkpoint.dirpath: {named} holds the checkpoints of {{}}: give this run a folder of its own, such as "
        )
        refusal += f"{Path(named) / run.name}, or leave it out."
        if around := run_around(folder / "any"):
            raise UserError(
                f"checkpoint.dirpath: {named} lies in the run {around.name}: give this run a folder of its own, or "
                "leave it out."
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with lock.alone_in(folder):
                owner = noted_owner(folder)
                if owner == own:
                    continue
                kept = next(folder.glob("*.ckpt"), None)
                moved = resumes and (owner is None or not owner.is_dir())  # it is the run's, under another path
                if (kept is not None and not moved) or (owner is not None and lock.is_held_elsewhere(owner)):
                    raise UserError(refusal.format(owner or f"another run ({kept.name if kept else ''})"))
                write_text(folder / OWNER, str(own))
        except OSError as error:
            raise UserError(f"checkpoint.dirpath: {named} can't be written: {error.strerror}.") from error


def release() -> None:
    """Gives the locks back; what was made for a run that came to nothing is removed."""
    while _new:
        folder, highest = _new.pop()
        if not folder.is_dir() or [path.name for path in folder.iterdir()] != [lock.NAME]:
            continue
        (folder / lock.NAME).unlink()
        for path in (folder, *folder.parents):
            if any(path.iterdir()):
                break
            path.rmdir()
            if path == highest:
                break
    lock.release()
