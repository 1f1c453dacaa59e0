"""What a run has saved to go on from: its config and its checkpoints."""

import atexit
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.io import newest_intact, path_in
from litlab.checkpointing.load import load_checkpoint
from litlab.errors import UserError
from litlab.runs.compare import read_config
from litlab.runs.find import find_run, noted_owner
from litlab.runs.folder import RunFolder, set_aside, write_text
from litlab.runs.lock import is_first_process

SECTIONS = ("trainer", "model", "data", "ckpt_path")  # of every config of a fit, from its beginning to its end


def saved_config(run: RunFolder, mend: bool = False) -> tuple[Path, dict[str, Any]]:
    """The config of a run: its ``config.yaml``, or where that is damaged or gone, the one in its newest checkpoint.

    Args:
        run: The run.
        mend: Whether to write a damaged one anew.

    Returns:
        The file to put in front of a command line, and its content.

    Raises:
        UserError: If neither can be read.
    """
    try:
        config = read_config(run.config)
        missing = next((name for name in SECTIONS if name not in config), None)
        if missing is None:
            return run.config, config
        problem = f"{run.config} is damaged: it has no '{missing}'."
    except UserError as error:
        problem = str(error)
    newest, _ = newest_intact(run.checkpoints)
    if newest is None:
        raise UserError(
            f"{run.name} has no checkpoint to go on from, and no config: {problem.rstrip('.')}, and {run.checkpoints} "
            "holds none that is whole."
        )
    path = config_in(newest)
    if is_first_process():
        if mend:
            if os.path.lexists(run.config):
                set_aside(run.config, problem.partition(" is damaged")[2].strip(" :().") or "it can't be read")
            rank_zero_info(f"{run.config} is written anew, from {newest.name}.")
            write_text(run.config, path.read_text(encoding="utf-8"))
        else:
            print(f"warning: {problem.rstrip('.')}: the config in {newest.name} is taken.", file=sys.stderr)
    return path, read_config(path)


def checkpoint_of(text: str) -> Path:
    """The checkpoint that a user means: a file, or a run's best one, its newest where it has no best.

    Raises:
        UserError: If there is none.
    """
    if os.path.isfile(text):
        return Path(text)
    run = find_run(text)
    return checkpoint_in(run, saved_config(run)[1], None)


def checkpoint_in(run: RunFolder, saved: dict[str, Any], which: str | None) -> Path:
    """A checkpoint of a run.

    Args:
        run: The run.
        saved: Its config.
        which: ``last``, ``best``, or None for the best where one was kept, else the last.

    Raises:
        UserError: If it is not there. For a best one that is lost, no other one is taken.
    """
    folder = checkpoint_folder(run, saved)
    newest, notes = newest_intact(folder)
    if is_first_process():
        for note in notes:
            print(f"warning: {note}", file=sys.stderr)
    if newest is None:
        what = "none that is whole" if notes else "none yet"
        raise UserError(f"{run.name} has no checkpoint to go on from: {folder} holds {what}.")
    if which == "last":
        return newest
    best = best_in(newest)
    if best is None and which == "best":
        raise UserError(f"{run.name} has no best checkpoint in {folder}: take --ckpt_path last.")
    if best is not None and not best.is_file():
        raise UserError(
            f"{run.name}: its best checkpoint, {best}, is not there: bring it back, or give another one "
            f"({newest} is its newest)."
        )
    return best or newest


def checkpoint_folder(run: RunFolder, saved: dict[str, Any]) -> Path:
    """Where the checkpoints of a run are.

    Raises:
        UserError: If the folder has become that of another run.
    """
    settings = (saved.get("checkpoint") or {}).get("init_args") or {}
    folder = Path(settings.get("dirpath") or run.checkpoints)
    owner = noted_owner(folder)
    if owner is not None and owner.is_dir() and owner != run.path.resolve():
        raise UserError(f"{run.name} has no checkpoint to go on from: those in {folder} are of {owner}.")
    return folder


def best_in(checkpoint: Path) -> Path | None:
    """The best checkpoint, as far as the run knew when it wrote this one; None where none was kept.

    The path is given in the folder of this checkpoint: the run may have been moved.
    """
    states = callback_states(checkpoint)
    own = [state for name, state in states.items() if name.startswith("RunCheckpoint")]
    for state in (*own, *states.values()):
        if path := state.get("best_model_path"):
            return Path(path_in(checkpoint.parent, path, state.get("dirpath")))
    return None


def callback_states(checkpoint: Path) -> dict[str, dict[str, Any]]:
    """The states that callbacks which write checkpoints have in one."""
    states = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True).get("callbacks") or {}
    return {name: state for name, state in states.items() if isinstance(state, dict) and "best_model_path" in state}


def config_in(checkpoint: Path) -> Path:
    """A file with the config that a checkpoint holds; it goes with the process.

    Raises:
        UserError: If the checkpoint holds none.
    """
    text = load_checkpoint(str(checkpoint)).get("config")
    if not isinstance(text, str):
        raise UserError(f"{checkpoint} lies in no run folder and holds no config: give --config and --ckpt_path.")
    return temporary_config(text)


def temporary_config(text: str) -> Path:
    """A file with a config; it goes with the process."""
    descriptor, name = tempfile.mkstemp(suffix=".yaml")
    atexit.register(Path(name).unlink, missing_ok=True)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return Path(name)
