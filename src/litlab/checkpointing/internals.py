"""Every private name of Lightning and torch that checkpoints and signals rely on, one function for
each use.
"""

from collections.abc import Callable
from typing import Any

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import WeightAveraging

# Where training is


def is_accumulating(trainer: Trainer) -> bool:
    """Return whether the current batch completes no optimizer step."""
    return trainer.fit_loop._should_accumulate()


def is_last_batch(trainer: Trainer) -> bool:
    """Return whether the current batch is the last one of its epoch."""
    return trainer.fit_loop.epoch_loop._num_ready_batches_reached()


def validation_follows(trainer: Trainer) -> bool:
    """Return whether Lightning validates after the current batch."""
    fetcher = trainer.fit_loop._data_fetcher
    return fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)


def ends_within_epoch(trainer: Trainer) -> bool:
    """Return whether the current batch is the last one of the run, though not of its epoch."""
    stops = trainer.should_stop and trainer.fit_loop._can_stop_early
    return (stops or 0 <= trainer.max_steps <= trainer.global_step) and not is_last_batch(trainer)


def begin_epoch_anew(trainer: Trainer) -> None:
    """Let a resumed run begin its next epoch as any other; with ``max_steps`` Lightning takes it
    for a restarted one.

    Loaders make their iterators again, after their order is seeded.
    """
    loop = trainer.fit_loop
    loop._resuming_from_checkpoint = False
    for part in (loop, loop.epoch_loop, loop.epoch_loop.val_loop):
        part._restarting = False
        part.reset_restart_stage()


def precede(loop: Any, method: str, function: Callable[[], Any]) -> None:
    """Call a function before a method of a loop, and so before the hooks of all callbacks that it
    calls.
    """
    original = getattr(loop, method)

    def both() -> None:
        function()
        original()

    setattr(loop, method, both)


def end_restart(trainer: Trainer) -> None:
    """Let Lightning step ReduceLROnPlateau at the end of an epoch that was resumed within."""
    trainer.fit_loop._restarting = False


def log_at_step(trainer: Trainer, step: int) -> None:
    """Let an evaluation log its results at an optimizer step of the run."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step


def release_averages(trainer: Trainer) -> None:
    """Let a test load a checkpoint into the model, not into the average of Lightning's
    WeightAveraging.
    """
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, WeightAveraging):
            callback._average_model = None


# Signals and generators


def disable_signal_handling(trainer: Trainer) -> None:
    """Keep Lightning from handling signals, and from asking all ranks for them before every
    batch.
    """
    trainer._signal_connector.register_signal_handlers = _do_nothing
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _do_nothing


def requeue_signal(trainer: Trainer) -> int | None:
    """Return the signal that announces the end of a SLURM job, None where the job is not to be
    requeued.
    """
    environment: Any = trainer._accelerator_connector.cluster_environment
    requeues = isinstance(environment, SLURMEnvironment) and environment.auto_requeue
    return environment.requeue_signal if requeues else None


def _do_nothing(*_: object) -> None:
    pass
