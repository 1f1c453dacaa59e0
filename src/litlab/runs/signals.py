"""SIGTERM, SIGINT and SIGHUP: finish the step, save the state, and end with the signal's exit code."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any, NoReturn

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.callback import save_last, wait_for_checkpoints
from litlab.checkpointing.internals import (
    disable_signal_handling,
    is_accumulating,
    is_last_batch,
    new_store,
    requeue_signal,
    validation_follows,
)
from litlab.checkpointing.loop_state import restart_validation
from litlab.errors import UserError
from litlab.runs.rank_watch import RankWatch
from litlab.runs.signal_watch import SignalWatch
from litlab.util.strategies import shards

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the last one when the terminal is closed


class Interrupted(SystemExit):
    """A signal ended the run after its state was saved. Not caught, it ends the process with the usual exit code.

    Args:
        signum: The signal: SIGTERM gives exit code 143, SIGINT 130, SIGHUP 129.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


class StopSignals(Callback):
    """Stop on SIGTERM, SIGINT or SIGHUP after the current step, with ``last.ckpt`` saved, whichever rank gets it.

    Training stops after the next optimizer step, never between the batches of an accumulation. Where a validation
    follows that step, or is running, it is left after its current batch (where ranks compute each batch together, after
    the same one), and the checkpoint is that of the training before it: a resumed run repeats the validation
    (`ExactResume`). After the last step of an epoch without validation,
    the epoch is completed. ``validate``, ``test``, ``predict`` and the sanity check stop after the current batch and
    save nothing; neither does a run without a ModelCheckpoint. Training that is over before it could be stopped is
    completed, and what would follow in the process is left out.

    A second SIGINT leaves at once, even where the main thread hangs in a collective. Ranks agree on the step through
    the store of the process group, by a thread of their own (`SignalWatch`); a step costs them a comparison. Outside of
    the main thread, where Python allows no signal handlers, the callback does nothing.

    Under SLURM the signal that announces the end of the time limit (``#SBATCH --signal=SIGUSR1@90``) does the same, and
    puts the job back into the queue. When the job starts again, it resumes the run (`resume_plan`).

    Lightning's own handling of these signals (2.6.6) is disabled. That of SIGTERM broadcasts inside of the handler,
    which hangs on a rank above zero; broadcasts and waits for the device before every batch; and exits with 0, without
    a checkpoint. That of SLURM's signal saves in the middle of a step, from within the handler, into another folder.
    """

    _stages = 0  # of all runs of the process: the store of its process group may outlive a Trainer
    _watch = SignalWatch()  # hears nothing; a stage has one of its own

    def __init__(self) -> None:
        self._ranks = RankWatch()
        self._previous: dict[int, Any] = {}  # handlers of the signals
        self._too_late = False  # whether a signal came when training was over
        self._validating = False  # whether the checkpoint being saved is to repeat its validation
        self._requeue_signal: int | None = None  # SLURM's
        self._together = False  # whether ranks compute each batch together, in an evaluation too
        self._batches = 0  # of evaluations, where they do

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Handle the signals; move behind all callbacks, so that what they do at the end of a step is done."""
        if threading.current_thread() is not threading.main_thread():
            return
        trainer.callbacks = sorted(trainer.callbacks, key=lambda callback: callback is self)  # pyright: ignore[reportAttributeAccessIssue]
        self._validating = False
        self._together, self._batches = trainer.world_size > 1 and shards(trainer.strategy), 0
        disable_signal_handling(trainer)
        self._ranks.begin(trainer)
        self._requeue_signal = requeue_signal(trainer)
        signals = {*STOPPING, *([self._requeue_signal] if self._requeue_signal else [])}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: the run is to outlive its terminal
            signals.discard(signal.SIGHUP)
        StopSignals._stages += 1
        store = new_store(f"stop signals {StopSignals._stages}") if trainer.world_size > 1 else None
        heard = self._watch.signum  # in the stage before, where it came too late: in fit, before test
        self._watch = SignalWatch(store, trainer.global_rank, trainer.world_size)
        for signum in signals:
            # The watch hears of it; a handler of Python's only replaces the default action.
            self._previous[signum] = signal.signal(signum, lambda *_: None)
        self._watch.start(signals, lambda: self._leave_at_once(trainer), heard)

    # Training

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note where a resumed run continues."""
        self._watch.reached(self._place(trainer))

    def _place(self, trainer: Trainer) -> int:
        """Return how far the stage has come, in what ranks do together: steps, and maybe batches of evaluations."""
        return trainer.global_step + self._batches

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop after an optimizer step, if it is the one agreed on and nothing follows that belongs to it."""
        if not self._watch.needs_steps or is_accumulating(trainer) or not self._watch.reached(self._place(trainer)):
            return
        ends = 0 <= trainer.max_steps <= trainer.global_step or trainer.should_stop or is_last_batch(trainer)
        if not ends and not validation_follows(trainer):
            self._stop(trainer, save=True)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop where the epoch before ended with the step agreed on."""
        if self._watch.due(self._place(trainer)):
            progress = trainer.fit_loop.epoch_progress  # as it is in checkpoints at the end of an epoch
            for count in (progress.total, progress.current):
                count.ready -= 1
                count.completed -= 1
            self._stop(trainer, save=trainer.global_step > 0)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Agree on whether a signal came too late to stop anything."""
        heard = self._watch.signum is not None
        self._too_late = bool(self._previous) and trainer.strategy.reduce_boolean_decision(heard, all=False)

    # Evaluation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop before a validation that follows the step agreed on; ranks that train together, after its first batch.

        In that batch, DDP copies the buffers of the first rank, which may be there already, to all others.
        """
        in_step = trainer.world_size > 1 and (trainer.state.fn == "fit" or self._together)
        if not in_step and self._watch.due(self._place(trainer)):
            self._stop_evaluation(trainer)

    on_test_start = on_predict_start = on_validation_start

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Let each rank stop after any batch, from the first to the last, whichever batch the others are in.

        Where a batch needs all ranks, batches are counted as steps are. Else, in a fit, ranks wait for each other in
        the first batch, where DDP copies the buffers of the first rank; but none stops before the end of that batch.
        """
        if batch_idx == 0 and dataloader_idx == 0 and not self._together:
            self._watch.evaluate(True)

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Stop after the batch."""
        fitting, validating = trainer.state.fn == "fit", trainer.state.fn == "validate"  # predicting needs no agreement
        loop = trainer.validate_loop if validating else trainer.test_loop
        if (trainer.fit_loop.epoch_loop.val_loop if fitting else loop).batch_progress.is_last_batch:
            self._watch.evaluate(False)
        self._batches += self._together
        if self._watch.reached(self._place(trainer) if self._together else None):
            for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
                if fitting and isinstance(callback, WeightAveraging):
                    callback.on_validation_epoch_end(trainer, pl_module)  # the weights in training replace the average
            self._stop_evaluation(trainer)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def _stop_evaluation(self, trainer: Trainer) -> None:
        self._validating = trainer.state.fn == "fit" and not trainer.sanity_checking
        self._stop(trainer, save=self._validating)

    # The end

    def _stop(self, trainer: Trainer, save: bool) -> NoReturn:
        assert self._watch.signum is not None
        where = f"{signal.Signals(self._watch.signum).name}: stopped after {trainer.global_step} optimizer steps"
        kept = trainer.checkpoint_callback
        if not isinstance(kept, ModelCheckpoint) or not kept.dirpath or trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            rank_zero_info(f"{where}; this run keeps no checkpoints.")
        else:
            if save:
                save_last(trainer, kept)
                wait_for_checkpoints(trainer)
            rank_zero_info(f"{where}; they are in {kept.last_model_path}." if kept.last_model_path else f"{where}.")
        self._ranks.adopt(trainer)
        raise Interrupted(self._watch.signum)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let a resumed run repeat the validation that is left."""
        if self._validating:
            done: Any = trainer.fit_loop.epoch_loop.val_loop.batch_progress.current
            restart_validation(checkpoint["loops"]["fit_loop"], done.completed)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Let checkpoints be completed, no rank that this process has started outlive it, and restore the handlers."""
        if isinstance(exception, UserError):
            trainer.strategy.checkpoint_io.teardown()
        self._ranks.stop(trainer, exception)
        self._restore_handlers()
        if isinstance(exception, Interrupted) and exception.signum == self._requeue_signal and trainer.is_global_zero:
            _requeue_job()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Restore the signal handlers."""
        self._ranks.pause()
        self._restore_handlers()
        if self._too_late:
            self._too_late = False
            raise Interrupted(self._watch.signum or signal.SIGTERM)

    def _restore_handlers(self) -> None:
        if self._previous:
            self._watch.stop()
        while self._previous:
            signal.signal(*self._previous.popitem())

    def _leave_at_once(self, trainer: Trainer) -> NoReturn:
        self._ranks.kill(trainer)
        os.write(2, b"\nSIGINT again: left at once, nothing was saved.\n")
        os._exit(128 + signal.SIGINT)


def _requeue_job() -> None:
    """Put the SLURM job that this process belongs to back into the queue."""
    job = os.environ["SLURM_JOB_ID"]
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
    if done.returncode == 0:
        rank_zero_info(f"SLURM job {job} is requeued.")
    else:
        print(f"warning: SLURM job {job} can't be requeued: {done.stderr.strip()}", file=sys.stderr)
