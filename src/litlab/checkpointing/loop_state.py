"""Correct what checkpoints say about Lightning's loops, which decides where a resumed run continues."""

from typing import Any

from lightning.pytorch import Trainer

from litlab.checkpointing.internals import is_last_batch, validation_follows


def is_within_epoch(checkpoint: dict[str, Any]) -> bool:
    """Return whether a checkpoint was written before the last batch of its epoch."""
    batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    return batches["current"]["ready"] > 0 and not batches["is_last_batch"]


def complete_batch(trainer: Trainer, state: dict[str, Any]) -> None:
    """Let a checkpoint written within ``on_train_batch_end`` say that the batch is over, if another batch is not next.

    Lightning (2.6.6) otherwise resumes as if the validation, or the end of the epoch, that follows were over too.

    Args:
        trainer: It is writing the checkpoint.
        state: The checkpoint's state of the fit loop, changed in place.
    """
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    if progress.total.completed == progress.total.processed:
        return
    validates = validation_follows(trainer)
    if not validates and not progress.is_last_batch:
        return
    trained = state["epoch_loop.batch_progress"]
    for counts in (trained["total"], trained["current"]):
        counts["completed"] = counts["processed"]
    if validates:
        restart_validation(state, 0)
    else:  # Lightning counts the step in the logs after this hook
        state["epoch_loop.state_dict"]["_batches_that_stepped"] += 1


def reopen_epoch(trainer: Trainer, state: dict[str, Any]) -> None:
    """Let a checkpoint written after an epoch that ``max_steps`` has cut short say that the epoch is not over.

    Lightning (2.6.6) counts it as processed, and would resume with its remaining batches as the next epoch.

    Args:
        trainer: It is writing the checkpoint.
        state: The checkpoint's state of the fit loop, changed in place.
    """
    progress = state["epoch_progress"]
    began = state["epoch_loop.batch_progress"]["current"]["ready"] > 0
    if not began or is_last_batch(trainer) or progress["current"]["processed"] < progress["current"]["started"]:
        return
    for counts in (progress["total"], progress["current"]):
        counts["processed"] = counts["started"] - 1
        counts["completed"] = min(counts["completed"], counts["processed"])


def restart_validation(state: dict[str, Any], done: int) -> None:
    """Let a checkpoint say that the first batch of a validation is running: Lightning then starts with that batch.

    From a state between two of its batches Lightning would continue with the next epoch.

    Args:
        state: The checkpoint's state of the fit loop, changed in place.
        done: Batches of that validation that are already counted.
    """
    batches = state["epoch_loop.val_loop.batch_progress"]
    before = batches["total"]["completed"] - done
    batches["total"] = {"ready": before + 1, "started": before + 1, "processed": before, "completed": before}
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False


def count_restarted_validation_once(trainer: Trainer) -> None:
    """Take back the batch that `restart_validation` has counted, now that the validation begins."""
    loop = trainer.fit_loop.epoch_loop.val_loop
    if loop.restarted_mid_evaluation:
        total: Any = loop.batch_progress.total
        total.ready = total.started = total.completed
