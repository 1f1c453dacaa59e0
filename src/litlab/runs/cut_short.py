"""Checkpoints of a run that was killed, or had no room, between the files of one of its writes."""

import shutil
from dataclasses import replace
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.io import path_in, write_whole
from litlab.checkpointing.load import damage
from litlab.errors import UserError
from litlab.runs.resume_plan import Continuation
from litlab.runs.saved import callback_states


def complete_write(plan: Continuation) -> Continuation:
    """Does what was left: removes a best checkpoint that a better one has replaced, and brings ``last.ckpt`` up to it.

    A best checkpoint is written first, then the one that it replaces is removed, then ``last.ckpt`` is written. Where
    the newest file is a best one, the run ended in between.

    Args:
        plan: A run to resume, and its newest checkpoint.

    Returns:
        The plan, with ``last.ckpt`` to go on from.

    Raises:
        UserError: If there is no room for it.
    """
    settings = (plan.saved.get("checkpoint") or {}).get("init_args") or {}
    newest = plan.checkpoint
    if newest is None or newest.name == "last.ckpt" or not settings.get("save_last"):
        return plan
    last = newest.with_name("last.ckpt")
    if settings.get("save_top_k", 1) > 0 and last.is_file() and damage(last) is None:
        for old in _named(last) - _named(newest):
            if old.is_file():
                old.unlink()
                rank_zero_info(f"Removed {old}, which {newest.name} has replaced.")
    try:
        with newest.open("rb") as source:
            write_whole(last, lambda stream: shutil.copyfileobj(source, stream))
    except OSError as error:
        raise UserError(f"{last} can't be written: {error.strerror}; {newest} is intact.") from error
    return replace(plan, checkpoint=last)


def _named(checkpoint: Path) -> set[Path]:
    """The best checkpoints that one knows of, in its folder."""
    return {
        Path(path_in(checkpoint.parent, path, state.get("dirpath")))
        for state in callback_states(checkpoint).values()
        for path in (state["best_model_path"], *state.get("best_k_models", {}))
        if path
    }
