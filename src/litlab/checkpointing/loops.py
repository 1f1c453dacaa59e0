"""Every reach into the state of Lightning's loops, one function for each.

Lightning counts epochs in ``trainer.fit_loop``, batches and steps in its ``epoch_loop``, and those
of a validation in the ``val_loop`` of that. A checkpoint holds all these counts, and a resumed run
goes on by them. Where they are not enough to go on exactly, they are changed here: in the loops, or
in a checkpoint before it is written. All of it is true of Lightning 2.6.6.
"""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import WeightAveraging

# Where training is


def can_save(trainer: Trainer) -> bool:
    """Return whether a run could go on exactly from a checkpoint that is written after this batch.

    Not while gradients are being accumulated, as Lightning does not restore them; and not between a
    step and the validation or the end of the epoch that follows it, as Lightning would skip that.
    """
    # Batches are counted from 0: with an accumulation of 4 the first step follows batch 3
    accumulates = (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches > 0
    return not (accumulates or trainer.is_last_batch or validation_follows(trainer))


def validation_follows(trainer: Trainer) -> bool:
    """Return whether Lightning validates after the current batch.

    Half a dozen settings decide this, and no public method tells.
    """
    # There is none before the data is set up
    fetcher = trainer.fit_loop._data_fetcher
    return fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)


def ends_within_epoch(trainer: Trainer) -> bool:
    """Return whether the current batch is the last one of the run, though not of its epoch.

    ``epoch_loop.done`` does not say so of the first batch of a resumed run, and logs when it is
    asked; ``should_stop`` alone leaves out ``min_epochs`` and ``min_steps``.
    """
    # max_steps is -1 where there is no limit
    stops = trainer.should_stop and trainer.fit_loop._can_stop_early
    return (stops or 0 <= trainer.max_steps <= trainer.global_step) and not trainer.is_last_batch


# A moment that has no hook


def precede(loop: Any, method: str, function: Callable[[], Any]) -> None:
    """Call a function before a method of a loop, and so before the hooks of all callbacks that it
    calls.
    """
    # On the object, not on the class: loops of other Trainers stay as they are
    original = getattr(loop, method)

    def call_both(*arguments: Any, **options: Any) -> Any:
        function()
        return original(*arguments, **options)

    setattr(loop, method, call_both)


# What a checkpoint says


def is_within_epoch(checkpoint: dict[str, Any]) -> bool:
    """Return whether a checkpoint was written within an epoch, not between two of them."""
    return checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["ready"] > 0


def complete_epoch(checkpoint: dict[str, Any]) -> None:
    """Let a checkpoint that is written between two epochs say that the first is complete, and
    nothing is under way.

    By Lightning's own counts the next epoch is ready, but not started, and its loader is at the end
    of the epoch before: the resumed run would enter the epoch in its midst, without its hooks.
    """
    state = checkpoint["loops"]["fit_loop"]
    epochs = state["epoch_progress"]
    if epochs["current"]["started"] > epochs["current"]["processed"]:
        return  # within an epoch
    # Ready, started and completed get the number of those that are processed
    for counts in epochs.values():
        counts.update(dict.fromkeys(counts, counts["processed"]))

    # No batch of the next epoch has come; its loader begins anew
    batches = state["epoch_loop.batch_progress"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False
    state["state_dict"].pop("combined_loader", None)


def restart_validation(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Let a checkpoint that is written in a validation say that its first batch is running, so that
    Lightning starts with that batch.

    From a state between two of its batches Lightning would continue with the next epoch.
    """
    # The batches of all validations before this one, and one that has started and is not processed.
    # So Lightning takes the validation for one that was interrupted within a batch
    done: Any = trainer.fit_loop.epoch_loop.val_loop.batch_progress.current
    batches = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
    before = batches["total"]["completed"] - done.completed
    batches["total"] = {
        "ready": before + 1,
        "started": before + 1,
        "processed": before,
        "completed": before,
    }
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False


# How a resumed run goes on


def forget_loader(trainer: Trainer) -> None:
    """Let Lightning ask for the training data again, once it is known where the run continues.

    A schedule that counts the steps of the run has loaded it before, from the start of an epoch.
    """
    trainer.fit_loop._combined_loader = None


def forget_restart(trainer: Trainer) -> None:
    """Let Lightning take what follows for a run that was never interrupted.

    - An epoch that a resumed run begins is like any other: its loaders make their iterators after
      their order is seeded. With ``max_steps`` Lightning takes it for one that is taken up again.
    - ReduceLROnPlateau is stepped at the end of an epoch that was resumed within. Lightning leaves
      it out, as it does not keep the metrics.

    ``on_iteration_done`` is what each loop calls after its first iteration. The setter of
    ``fit_loop.restarting`` can't do it: with ``max_steps`` it takes False for True.
    """
    # All three, as each has a flag of its own
    epochs = trainer.fit_loop
    for loop in (epochs, epochs.epoch_loop, epochs.epoch_loop.val_loop):
        loop.on_iteration_done()


def count_restart_once(trainer: Trainer) -> None:
    """Take back the batch that `restart_validation` has counted, now that the validation begins."""
    loop = trainer.fit_loop.epoch_loop.val_loop
    if loop.restarted_mid_evaluation:
        total: Any = loop.batch_progress.total
        total.ready = total.started = total.completed


def step_plateaus(trainer: Trainer) -> None:
    """Step each ReduceLROnPlateau that the step before the checkpoint was to step.

    A checkpoint that is written in ``on_train_batch_end`` comes before Lightning does so, and a
    resumed run begins with the next batch.
    """
    loop = trainer.fit_loop.epoch_loop
    total: Any = loop.batch_progress.total
    # The batch was processed when the checkpoint was written, but not yet completed
    if total.completed < total.processed:
        loop.update_lr_schedulers("step", update_plateau_schedulers=True)


# An evaluation


def log_at_step(trainer: Trainer, step: int) -> None:
    """Let an evaluation log its results at an optimizer step of the run; Lightning begins at 0."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step


def release_averages(trainer: Trainer) -> None:
    """Let a test load a checkpoint into the model.

    Lightning's WeightAveraging keeps its average after a fit. The test would load the checkpoint
    into that, and test the weights of the last step.
    """
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, WeightAveraging):
            callback._average_model = None  # as before a fit


# Signals


def disable_signal_handling(trainer: Trainer) -> None:
    """Keep Lightning from handling signals, and from asking all ranks for them before every batch.

    Its handler of SIGTERM broadcasts, which hangs on a rank above zero, and the question waits for
    the device.
    """
    # The handlers are registered after the callbacks are set up, so this comes in time
    trainer._signal_connector.register_signal_handlers = _do_nothing
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _do_nothing


def _do_nothing() -> None:
    pass
