"""What a run has saved to resume it from: its config and its checkpoints."""

import atexit
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.io import best_checkpoint, load_checkpoint, newest_checkpoint
from litlab.errors import UserError
from litlab.runs.compare import read_config
from litlab.runs.find import find_run, noted_owner
from litlab.runs.folder import NO_CHECKPOINT, DamagedFile, RunFolder, set_aside, write_text
from litlab.runs.lock import is_first_process

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
    newest = newest_checkpoint(run.checkpoints)
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
    newest = newest_checkpoint(folder)
    if newest is None:
        what = "none yet"
        raise UserError(f"{run.name} has {NO_CHECKPOINT}: {folder} holds {what}.")
    if which == "last":
        return newest
    best = best_checkpoint(folder)
    if best is None and which == "best":
        raise UserError(f"{run.name} has no best checkpoint in {folder}; use --ckpt_path last.")
    if best is not None and not best.is_file():
        raise UserError(
            f"{run.name}: its best checkpoint, {best}, is missing; restore it, or give another one ({newest} is its "
            "newest)."
        )
    return best or newest


def complete_write(newest: Path, saved: dict[str, Any]) -> Path:
    """Return the checkpoint to resume from."""
    return newest


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    return (saved.get("checkpoint") or {}).get("init_args") or {}
