"""What a run has saved to resume it from: its config and its checkpoints."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.io import AtomicCheckpointIO, newest_intact, path_in
from litlab.checkpointing.load import find_corruption, load_checkpoint
from litlab.checkpointing.shards import mark_replaced, remove_unnamed
from litlab.errors import UserError
from litlab.runs.compare import read_config
from litlab.runs.find import find_run, noted_owner
from litlab.runs.folder import NO_CHECKPOINT, DamagedFile, RunFolder, set_aside, write_text
from litlab.runs.lock import is_first_process
from litlab.util.files import write_atomically
from litlab.util.torch_files import read_torch_file

SECTIONS = ("trainer", "model", "data", "ckpt_path")  # of every config of a fit, from its beginning to its end

# Configs


def saved_config(run: RunFolder, repair: bool = False) -> tuple[Path, dict[str, Any]]:
    """Return the config of a run: its ``config.yaml``, or where that is damaged, the one in its newest checkpoint.

    Args:
        run: The run.
        repair: Whether to replace a damaged one.

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
        raise DamagedFile(run.config, f"it has no '{missing}'")
    except UserError as error:
        problem, why = str(error).partition(";")[0], getattr(error, "problem", "it can't be read")
    newest, _ = newest_intact(run.checkpoints)
    if newest is None:
        raise UserError(
            f"{run.name} has {NO_CHECKPOINT}, and no config: {problem}, and {run.checkpoints} holds no "
            "intact checkpoint."
        )
    path = config_in(newest)
    if is_first_process():
        if repair:
            if os.path.lexists(run.config):
                set_aside(run.config, why)
            rank_zero_info(f"{run.config} is written again, from {newest.name}.")
            write_text(run.config, path.read_text(encoding="utf-8"))
        else:
            print(f"warning: {problem}: the config in {newest.name} is used.", file=sys.stderr)
    return path, read_config(path)


def config_in(checkpoint: Path) -> Path:
    """Return a temporary file with the config that a checkpoint holds.

    Raises:
        UserError: If the checkpoint holds none.
    """
    text = load_checkpoint(checkpoint, weights=False).get("config")
    if not isinstance(text, str):
        raise UserError(f"{checkpoint} is in no run folder and holds no config; give --config and --ckpt_path.")
    return temporary_config(text)


def temporary_config(text: str) -> Path:
    """Return a file with a config; it is removed as the process ends."""
    descriptor, name = tempfile.mkstemp(suffix=".yaml")
    atexit.register(Path(name).unlink, missing_ok=True)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return Path(name)


# Checkpoints


def checkpoint_of(text: str) -> Path:
    """Return the checkpoint that a user means: a file, or a run's best one, its newest where it has no best.

    Raises:
        UserError: If there is none.
    """
    if os.path.isfile(text):
        return Path(text)
    run = find_run(text)
    return checkpoint_in(run, saved_config(run)[1], None)


def checkpoint_in(run: RunFolder, saved: dict[str, Any], which: str | None) -> Path:
    """Return a checkpoint of a run.

    Args:
        run: The run.
        saved: Its config.
        which: ``last``, ``best``, or None for the best where one was kept, else the last.

    Raises:
        UserError: If it does not exist. A best one that is missing is not replaced by another.
    """
    folder = Path(_settings(saved).get("dirpath") or run.checkpoints)
    owner = noted_owner(folder)
    if owner is not None and owner.is_dir() and owner != run.path.resolve():
        raise UserError(f"{run.name} has {NO_CHECKPOINT}: those in {folder} belong to {owner}.")
    newest, notes = newest_intact(folder)
    if is_first_process():
        for note in notes:
            print(f"warning: {note}", file=sys.stderr)
    if newest is None:
        what = "no intact checkpoint" if notes else "none yet"
        raise UserError(f"{run.name} has {NO_CHECKPOINT}: {folder} holds {what}.")
    if which == "last":
        return newest
    best = next(iter(_best_named_in(newest)), None)
    if best is None and which == "best":
        raise UserError(f"{run.name} has no best checkpoint in {folder}; use --ckpt_path last.")
    if best is not None and not best.is_file():
        raise UserError(
            f"{run.name}: its best checkpoint, {best}, is missing; restore it, or give another one ({newest} is its "
            "newest)."
        )
    return best or newest


def complete_write(newest: Path, saved: dict[str, Any]) -> Path:
    """Finish what a run left undone that was killed, or ran out of disk, between two of its checkpoint files.

    A best checkpoint is written first, then the one that it replaces is removed, then ``last.ckpt`` is written. Where
    the newest file is a best one, the run ended in between.

    Args:
        newest: The newest checkpoint of a run that is resumed.
        saved: The run's config.

    Returns:
        The checkpoint to resume from: ``last.ckpt``, if the run keeps one.

    Raises:
        UserError: If there is no room for it.
    """
    settings, last = _settings(saved), newest.with_name("last.ckpt")
    if newest == last or not settings.get("save_last"):
        return newest
    if settings.get("save_top_k", 1) > 0 and last.is_file() and find_corruption(last) is None:
        for old in set(_best_named_in(last)) - set(_best_named_in(newest)):
            if old.is_file():
                AtomicCheckpointIO().remove_checkpoint(old)
                rank_zero_info(f"Removed {old}, which {newest.name} has replaced.")
    try:
        mark_replaced(last)
        with newest.open("rb") as source:
            write_atomically(last, lambda stream: shutil.copyfileobj(source, stream))
    except OSError as error:
        raise UserError(f"{last} can't be written ({error.strerror}), but {newest} is intact; make room.") from error
    remove_unnamed(last.parent)
    return last


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    return (saved.get("checkpoint") or {}).get("init_args") or {}


def _best_named_in(checkpoint: Path) -> list[Path]:
    """Return the best checkpoints, as far as the run knew when it wrote this one, the best of all first.

    Their paths are in the folder of this checkpoint: the run may have been moved.
    """
    states = read_torch_file(checkpoint, mmap=True).get("callbacks") or {}
    found = []
    for name in sorted(states, key=lambda name: not name.startswith("RunCheckpoint")):
        state = states[name]
        if isinstance(state, dict) and "best_model_path" in state:
            named = dict.fromkeys([state["best_model_path"], *state.get("best_k_models", {})])
            found += [Path(path_in(checkpoint.parent, path, state.get("dirpath"))) for path in named if path]
    return found
