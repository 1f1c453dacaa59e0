"""SIGTERM, SIGINT and SIGHUP: finish the step, save the state, and end with the signal's exit code."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any, NoReturn

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.callback import can_save, save_last, wait_for_checkpoints
from litlab.checkpointing.internals import disable_signal_handling, ends_within_epoch, requeue_signal
from litlab.checkpointing.resume import restart_validation

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the last one when the terminal is closed
EVERY_STEPS = 10  # after which several ranks tell each other of a signal


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

    One process stops after the next optimizer step, before a validation or after one of its batches, or between two
    epochs. A validation that it leaves is repeated by the resumed run. Several ranks agree after every tenth step,
    before a validation, and between two epochs. ``validate``, ``test`` and ``predict`` stop after the current batch and
    save nothing. A signal that comes when training is over lets it be completed, and the test is left out.

    A second SIGINT leaves at once. Under SLURM the signal that announces the end of the time limit
    (``#SBATCH --signal=SIGUSR1@90``) does the same as SIGTERM, and puts the job back into the queue.

    Lightning's own handling of these signals (2.6.6) is disabled: that of SIGTERM broadcasts inside of the handler,
    which hangs on a rank above zero, waits for the device before every batch, and exits with 0, without a checkpoint.
    """

    def __init__(self) -> None:
        self._signum = 0
        self._interrupts = 0
        self._previous: dict[int, Any] = {}  # handlers of the signals
        self._requeue_signal: int | None = None  # SLURM's
        self._step = 0  # at which ranks have told each other last
        self._leaves_out_test = False
        self._repeats_validation = False  # whether the checkpoint being saved does

    # Handlers

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Handle the signals, and move behind all callbacks, so that what they do at the end of a step is done."""
        if threading.current_thread() is not threading.main_thread():
            return
        trainer.callbacks = sorted(trainer.callbacks, key=lambda callback: callback is self)  # pyright: ignore[reportAttributeAccessIssue]
        disable_signal_handling(trainer)
        self._pid = os.getpid()
        self._requeue_signal = requeue_signal(trainer)
        signals = {*STOPPING, *([self._requeue_signal] if self._requeue_signal else [])}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: the run is to outlive its terminal
            signals.discard(signal.SIGHUP)
        for signum in signals:
            self._previous[signum] = signal.signal(signum, self._note)

    def _note(self, signum: int, frame: Any) -> None:
        if os.getpid() != self._pid:  # a worker that loads data: SIGINT is left to its parent, which needs the batch
            if signum != signal.SIGINT:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)
            return
        self._interrupts += signum == signal.SIGINT
        if self._interrupts > 1:
            os.write(2, b"\nSIGINT again: left at once, nothing was saved.\n")
            os._exit(128 + signal.SIGINT)
        self._signum = self._signum or signum

    # Training

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.world_size == 1:
            if not self._signum:
                return
        elif trainer.global_step < self._step + EVERY_STEPS:
            return
        if can_save(trainer) and not ends_within_epoch(trainer) and self._is_due(trainer):
            self._stop(trainer, save=True)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step = trainer.global_step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_due(trainer):
            self._stop(trainer, save=trainer.global_step > 0)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._leaves_out_test = self._is_due(trainer)

    def _is_due(self, trainer: Trainer) -> bool:
        """Return whether a rank has got a signal; all ranks call this together."""
        if trainer.world_size > 1:
            self._step = trainer.global_step
            signum = torch.tensor(self._signum, device=trainer.strategy.root_device)
            self._signum = int(trainer.strategy.reduce(signum, reduce_op="max"))
        return self._signum > 0

    # Evaluation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and self._is_due(trainer):
            self._leave_validation(trainer)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        if not self._signum or (trainer.world_size > 1 and trainer.state.fn == "fit"):
            return
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._leave_validation(trainer)
        self._stop(trainer, save=False)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def _leave_validation(self, trainer: Trainer) -> NoReturn:
        self._repeats_validation = True
        self._stop(trainer, save=True)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._repeats_validation:
            done: Any = trainer.fit_loop.epoch_loop.val_loop.batch_progress.current
            restart_validation(checkpoint["loops"]["fit_loop"], done.completed)

    # The end

    def _stop(self, trainer: Trainer, save: bool) -> NoReturn:
        name = signal.Signals(self._signum).name
        line = f"{name}: stopped after {trainer.global_step} optimizer steps"
        kept = trainer.checkpoint_callback
        if not isinstance(kept, ModelCheckpoint) or not kept.dirpath or trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            rank_zero_info(f"{line}; this run keeps no checkpoints.")
        else:
            if save:
                save_last(trainer, kept)
                wait_for_checkpoints(trainer)
            rank_zero_info(f"{line}; they are in {kept.last_model_path}." if kept.last_model_path else f"{line}.")
        self._raise(trainer)

    def _raise(self, trainer: Trainer) -> NoReturn:
        # Lightning's observer would kill this process as soon as one that it has started ends with this code.
        getattr(trainer.strategy.launcher, "procs", []).clear()
        raise Interrupted(self._signum)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore_handlers()
        if isinstance(exception, Interrupted) and exception.signum == self._requeue_signal and trainer.is_global_zero:
            requeue_job()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._restore_handlers()
        came_late = self._leaves_out_test or (trainer.world_size == 1 and self._signum > 0)
        if stage == "fit" and came_late:
            self._raise(trainer)

    def _restore_handlers(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())


def requeue_job() -> None:
    """Put the SLURM job that this process belongs to back into the queue."""
    job = os.environ["SLURM_JOB_ID"]
    done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
    if done.returncode == 0:
        rank_zero_info(f"SLURM job {job} is requeued.")
    else:
        print(f"warning: SLURM job {job} can't be requeued: {done.stderr.strip()}", file=sys.stderr)
