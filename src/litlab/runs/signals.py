"""SIGTERM, SIGINT and SIGHUP: finish the step, save the state, and end with the signal's exit
code.
"""

import os
import signal
import subprocess
from typing import Any, NoReturn

import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.callback import EVERY_STEPS, write_last_checkpoint
from litlab.checkpointing.loops import (
    can_save,
    disable_signal_handling,
    ends_within_epoch,
    restart_validation,
)


class Interrupted(SystemExit):
    """A signal ended the run after its state was saved: SIGTERM gives exit code 143, SIGINT 130,
    SIGHUP 129.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


class StopSignals(Callback):
    """Stop on SIGTERM, SIGINT or SIGHUP after the current step, with ``last.ckpt`` saved, whichever
    rank gets it.

    One process stops after the next optimizer step, before a validation or after one of its
    batches, or between two epochs. A validation that it leaves is repeated by the resumed run.
    Several ranks agree after every tenth step, before a validation, and between two epochs.
    ``validate``, ``test`` and ``predict`` stop after the current batch and save nothing. A signal
    that comes when training is over lets it be completed, and the test is left out.

    A second SIGINT leaves at once. Under SLURM the signal that announces the end of the time limit
    (``#SBATCH --signal=SIGUSR1@90``) does the same as SIGTERM, and puts the job back into the
    queue.

    Lightning's own handling of these signals (2.6.6) is disabled: that of SIGTERM broadcasts inside
    of the handler, which hangs on a rank above zero, waits for the device before every batch, and
    exits with 0, without a checkpoint.
    """

    def __init__(self) -> None:
        self._signum = 0  # of the signal that has come; 0: none
        self._previous: dict[int, Any] = {}  # the handlers before ours, by signal
        self._requeue_signal: Any = None  # SLURM's
        self._step = 0  # at which the ranks last told each other of signals
        self._came_late = False  # whether a signal came when training was over
        self._repeats_validation = False  # whether a run resumed from the next checkpoint does

    # Handlers

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Handle the signals, and move behind all callbacks, so that what they do at the end of a
        step is done.
        """
        trainer.callbacks = sorted(trainer.callbacks, key=lambda callback: callback is self)  # pyright: ignore[reportAttributeAccessIssue]
        disable_signal_handling(trainer)
        self._pid = os.getpid()
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]
        self._requeue_signal = find_requeue_signal(trainer)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, self._requeue_signal):
            # Under nohup, SIGHUP is ignored: the run is to outlive its terminal.
            if signum is not None and signal.getsignal(signum) is not signal.SIG_IGN:
                self._previous[signum] = signal.signal(signum, self._note)

    def _note(self, signum: int, frame: Any) -> None:
        # In a worker that loads data: SIGINT is left to its parent, which needs the batch
        if os.getpid() != self._pid:
            if signum != signal.SIGINT:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)
            return

        # A second Ctrl-C: without what Python does at its end, which may hang
        if signum == self._signum == signal.SIGINT:
            os.write(2, b"\nSIGINT again: left at once, nothing was saved.\n")
            os._exit(128 + signum)

        self._signum = signum
        if signum == signal.SIGHUP:  # the terminal is gone, and a write to it would end the run
            for stream in self._terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    def _restore_handlers(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    # Training

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if trainer.world_size == 1:
            is_time = self._signum > 0
        else:
            is_time = trainer.global_step >= self._step + EVERY_STEPS
        # The last step of a run is saved anyway, and the run completed
        if not is_time or not can_save(trainer) or ends_within_epoch(trainer):
            return
        if self._agree(trainer):
            self._stop(trainer, save=True)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._agree(trainer):
            # A RunCheckpoint has written as the epoch began
            written = getattr(trainer.checkpoint_callback, "step_of_last", 0)
            self._stop(trainer, save=trainer.global_step != written)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._came_late = self._agree(trainer)

    def _agree(self, trainer: Trainer) -> bool:
        """Return whether a rank has got a signal; all ranks call this together."""
        if trainer.world_size == 1:
            return self._signum > 0
        self._step = trainer.global_step
        signum = torch.tensor(self._signum, device=trainer.strategy.root_device)
        agreed = int(trainer.strategy.reduce(signum, reduce_op="max"))
        # One that has come meanwhile, to this rank alone, waits for the next time
        self._signum = agreed or self._signum
        return agreed > 0

    # Evaluation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and self._agree(trainer):
            self._repeats_validation = True
            self._stop(trainer, save=True)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        is_fit = trainer.state.fn == "fit"
        # Several ranks agree before a validation of a fit and after it, not within it
        if self._signum and not (is_fit and trainer.world_size > 1):
            self._repeats_validation = is_fit and not trainer.sanity_checking
            self._stop(trainer, save=self._repeats_validation)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._repeats_validation:
            restart_validation(trainer, checkpoint)

    # The end

    def _stop(self, trainer: Trainer, save: bool) -> NoReturn:
        name = signal.Signals(self._signum).name
        line = f"{name}: stopped after {trainer.global_step} optimizer steps"
        callback = trainer.checkpoint_callback
        if isinstance(callback, ModelCheckpoint) and callback.dirpath and not trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            if save:
                write_last_checkpoint(trainer, callback)
                # Waits for what is written in the background
                trainer.strategy.checkpoint_io.teardown()
            line += f"; they are in {callback.last_model_path}"
        rank_zero_info(line)
        self._raise(trainer)

    def _raise(self, trainer: Trainer) -> NoReturn:
        # Lightning's observer would kill this process as soon as one that it has started ends with
        # this code.
        getattr(trainer.strategy.launcher, "procs", []).clear()
        raise Interrupted(self._signum)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._restore_handlers()
        is_over = isinstance(exception, Interrupted) and exception.signum == self._requeue_signal
        if is_over and trainer.is_global_zero:
            command = ["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]
            code = subprocess.run(command).returncode  # which says what is wrong
            rank_zero_info(f"{' '.join(command)}: {'done' if code == 0 else 'failed'}.")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._restore_handlers()
        # Training is over, and so is this run: no test follows
        if stage == "fit" and (self._came_late or (self._signum and trainer.world_size == 1)):
            self._raise(trainer)


def find_requeue_signal(trainer: Trainer) -> int | None:
    """Return the signal that announces the end of a SLURM job, None where the job is not to be
    requeued.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if environment is None and SLURMEnvironment.detect():  # a strategy of one process has none
        environment = SLURMEnvironment()
    if isinstance(environment, SLURMEnvironment) and environment.auto_requeue:
        return environment.requeue_signal
    return None
