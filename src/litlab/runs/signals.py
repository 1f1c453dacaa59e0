"""SIGTERM, SIGINT and SIGHUP: the step is finished, the state saved, the process ends with the signal's exit code."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.utilities import rank_zero_info
from torch.distributed import PrefixStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

from litlab.runs.lost_rank import RankWatch
from litlab.runs.signal_watch import SignalWatch
from litlab.runs.slurm import requeue

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the last one when the terminal is closed
SECONDS_FOR_OTHER_RANKS = 5.0


class Interrupted(SystemExit):
    """A signal ended the run after its state was saved. Left alone, it ends the process with the usual exit code.

    Args:
        signum: The signal: SIGTERM gives exit code 143, SIGINT 130, SIGHUP 129.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


class StopSignals(Callback):
    """Stop on SIGTERM, SIGINT or SIGHUP after the step that runs, with ``last.ckpt`` saved, whichever rank gets it.

    Training stops after the next optimizer step, never between the batches of an accumulation. Where a validation
    follows that step, or runs already, it is left after its current batch, and the checkpoint is that of the training
    before it: resumed, the run begins with this validation, whole. After the last step of an epoch without validation,
    the epoch is completed. ``validate``, ``test``, ``predict`` and the sanity check stop after the current batch and
    save nothing; neither does a run without a ModelCheckpoint. Training that is over before it could be stopped is
    completed, and what would follow in the process is left out.

    A second SIGINT leaves at once, even where the main thread hangs in a collective. Ranks agree on the step through
    the store of the process group, by a thread of their own (`SignalWatch`); a step costs them a comparison. Outside of
    the main thread, where Python allows no signal handlers, the callback does nothing.

    Under SLURM the signal that announces the end of the time limit (``#SBATCH --signal=SIGUSR1@90``) does the same, and
    puts the job back into the queue. Started again, it goes on with the run (`continuation`).

    Lightning's own handling of these signals (2.6.6) is taken out. That of SIGTERM broadcasts inside of the handler,
    which hangs on a rank above zero; broadcasts and waits for the device before every batch; and exits with 0, without
    a checkpoint. That of SLURM's signal saves in the middle of a step, from within the handler, into another folder.
    """

    _stages = 0  # of all runs of the process: the store of its process group may outlive a Trainer

    def __init__(self) -> None:
        self._watch: SignalWatch | None = None
        self._previous: dict[int, Any] = {}
        self._signum: int | None = None  # heard in an earlier stage, where it came too late: in fit, before test
        self._too_late = False
        self._requeueing: int | None = None  # SLURM's signal
        self._ranks: list[subprocess.Popen] = []  # that this process has started
        self._rank_watch: RankWatch | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the signals over; go behind all callbacks, so that what they do at the end of a step is done."""
        if threading.current_thread() is not threading.main_thread():
            return
        others = [callback for callback in trainer.callbacks if callback is not self]  # pyright: ignore[reportAttributeAccessIssue]
        trainer.callbacks = [*others, self]  # pyright: ignore[reportAttributeAccessIssue]
        StopSignals._stages += 1
        store = None
        if trainer.world_size > 1:
            store = distributed_c10d._get_default_store().clone()  # a connection of its own: it waits for nobody
            store = PrefixStore(f"stop signals {StopSignals._stages}", store)
            self._watch_ranks(trainer)
        environment = trainer._accelerator_connector.cluster_environment
        if isinstance(environment, SLURMEnvironment) and environment.auto_requeue:
            self._requeueing = environment.requeue_signal
        signals = {*STOPPING, *([self._requeueing] if self._requeueing else [])}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: the run is to outlive its terminal
            signals.discard(signal.SIGHUP)
        leave = self._leave_at_once(trainer)
        self._watch = SignalWatch(store, trainer.global_rank, trainer.world_size, signals, leave)
        trainer._signal_connector._sigterm_notifier_fn = _nothing  # pyright: ignore[reportAttributeAccessIssue]
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _nothing
        for signum in signals:
            # The watch hears of it; a handler of Python's is only there to take the place of the default action.
            self._previous[signum] = signal.signal(signum, _nothing)
        self._watch.start(self._signum)

    # Training

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the watch where a resumed run goes on."""
        if self._watch is not None:
            self._watch.reached(trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After an optimizer step: stop, if it is the one agreed on and nothing follows that belongs to it."""
        if self._watch is None or not self._watch.counts or trainer.fit_loop._should_accumulate():
            return
        if self._watch.reached(trainer.global_step):
            loop, batches = trainer.fit_loop.epoch_loop, trainer.fit_loop._data_fetcher
            assert batches is not None
            if not (loop._is_training_done or trainer.should_stop or loop._should_check_val_fx(batches)):
                self._stop(trainer, save=True)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop where the epoch before ended with the step agreed on."""
        if self._watch is None or not self._watch.due(trainer.global_step):
            return
        if trainer.global_step == 0:
            self._stop(trainer, save=False)
        kept = trainer.checkpoint_callback
        if isinstance(kept, ModelCheckpoint) and kept.save_last and kept._last_global_step_saved == trainer.global_step:
            self._stop(trainer, save=False)
        progress = trainer.fit_loop.epoch_progress  # as it is in checkpoints at the end of an epoch
        for count in (progress.total, progress.current):
            count.ready -= 1
            count.completed -= 1
        self._stop(trainer, save=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Agree on whether a signal came too late to stop anything."""
        if self._watch is not None:
            heard = self._watch.signum is not None
            self._too_late = trainer.strategy.reduce_boolean_decision(heard, all=False)

    # Evaluation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop before a validation that follows the step agreed on."""
        if trainer.state.fn == "fit":
            loop = trainer.fit_loop.epoch_loop.val_loop
            if loop.restarted_mid_evaluation:  # the batch that _stop_evaluation had begun is not to be counted twice
                total: Any = loop.batch_progress.total
                total.ready = total.started = total.completed
        if self._watch is not None and self._watch.due(trainer.global_step):
            self._stop_evaluation(trainer)

    on_test_start = on_predict_start = on_validation_start

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """From here to the end of the last batch no rank waits for another: each may stop after its own batch."""
        if self._watch is not None and batch_idx == 0 and dataloader_idx == 0:
            self._watch.evaluate(True)

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Stop after the batch."""
        if self._watch is None:
            return
        loop: Any = trainer._active_loop
        if getattr(
            loop.batch_progress, "is_last_batch", False
        ):  # predict, after which no rank waits for another, has none
            self._watch.evaluate(False)
        if self._watch.reached_in_evaluation():
            for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
                if isinstance(callback, WeightAveraging) and trainer.state.fn == "fit":
                    callback.on_validation_epoch_end(trainer, pl_module)  # puts the weights in training back
            self._stop_evaluation(trainer)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def _stop_evaluation(self, trainer: Trainer) -> None:
        training = trainer.state.fn == "fit" and not trainer.sanity_checking
        if training:
            # The checkpoint is to say that the first batch of this validation has begun: Lightning then begins with it,
            # anew. From what it says between two batches Lightning would go on to the next epoch.
            progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
            total: Any = progress.total
            total.processed = total.completed = total.completed - progress.current.completed
            total.ready = total.started = total.completed + 1
            progress.current.reset()
            progress.is_last_batch = False
        self._stop(trainer, save=training)

    # The end

    def _stop(self, trainer: Trainer, save: bool) -> NoReturn:
        assert self._watch is not None
        assert self._watch.signum is not None
        where = f"{signal.Signals(self._watch.signum).name}: stopped after {trainer.global_step} optimizer steps"
        kept = trainer.checkpoint_callback
        if not isinstance(kept, ModelCheckpoint) or not kept.dirpath or trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            rank_zero_info(f"{where}; this run keeps no checkpoints.")
        else:
            if save:
                # Its state in the checkpoint is to know the file, which it would not overwrite otherwise.
                kept.last_model_path = str(Path(kept.dirpath) / (kept.CHECKPOINT_NAME_LAST + kept.FILE_EXTENSION))
                trainer.save_checkpoint(kept.last_model_path, weights_only=False)
            rank_zero_info(f"{where}; they are in {kept.last_model_path}." if kept.last_model_path else f"{where}.")
        self._take_ranks(trainer)
        raise Interrupted(self._watch.signum)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give the signals back, and let no rank that this process has started outlive it."""
        if self._rank_watch is not None:
            self._rank_watch.stop(exception)
        self._give_back(trainer)
        self._take_ranks(trainer)
        deadline = time.monotonic() + SECONDS_FOR_OTHER_RANKS
        for process in self._ranks:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        if isinstance(exception, Interrupted) and exception.signum == self._requeueing and trainer.is_global_zero:
            requeue()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the signals back."""
        if self._rank_watch is not None:
            self._rank_watch.rest()
        self._give_back(trainer)
        if self._too_late:
            self._too_late = False
            raise Interrupted(self._signum or signal.SIGTERM)

    def _give_back(self, trainer: Trainer) -> None:
        if self._watch is None:
            return
        self._signum = self._watch.stop()
        self._watch = None
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        # After an exception Lightning restores, later than this, what it found when it began: this callback's handlers.
        if trainer._signal_connector._original_handlers:
            trainer._signal_connector._original_handlers.update(self._previous)
        self._previous = {}

    def _watch_ranks(self, trainer: Trainer) -> None:
        log_dir = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if self._rank_watch is None:
            self._take_ranks(trainer)
            self._rank_watch = RankWatch(trainer, self._ranks)
        self._rank_watch.begin(None if log_dir is None else Path(log_dir))

    def _take_ranks(self, trainer: Trainer) -> None:
        """Takes the ranks from the launcher, which kills this process 5 seconds after one ends with an exit code."""
        started = getattr(trainer.strategy.launcher, "procs", [])
        self._ranks += started
        started.clear()

    def _leave_at_once(self, trainer: Trainer) -> Callable[[], None]:
        def leave() -> None:
            for process in [*self._ranks, *getattr(trainer.strategy.launcher, "procs", [])]:
                process.kill()
            os.write(2, b"\nSIGINT again: left at once, nothing was saved.\n")
            os._exit(128 + signal.SIGINT)

        return leave


def _nothing(*arguments: object) -> None:
    """Takes the place of what must not happen."""
