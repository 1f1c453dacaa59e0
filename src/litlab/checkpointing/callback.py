"""Which checkpoints a run keeps: the best by a metric of the validation, and the last state."""

import os
import time
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from litlab.callbacks.reporting import run_folder
from litlab.checkpointing.io import check_local
from litlab.checkpointing.loops import can_save, ends_within_epoch, precede
from litlab.runs.folder import RunFolder
from litlab.types import PositiveFloat, PositiveInt
from litlab.util.metrics import choose_mode

PATHS = ("best_model_path", "kth_best_model_path", "last_model_path")  # in its state
EVERY_STEPS = 10  # after which several ranks tell each other the time, and of signals


class RunCheckpoint(ModelCheckpoint):
    """Keep the best checkpoints after validations, and ``last.ckpt`` at the end of each epoch, and
    more often if asked.

    Lightning's ModelCheckpoint (2.6.6) writes ``last.ckpt`` only where a best one is written: a run
    that gets no better would be resumed from long ago. Ours is written as the next epoch starts,
    when nothing of the epoch before is still to be done, and at the end of the run.

    Args:
        dirpath: Folder. Left out, ``checkpoints`` in the run folder. Runs of the command line can
            share it: each gets a folder in it, ``<experiment>/version_N``, to which ``checkpoints``
            in the run folder is a link.
        filename: Name of the best ones, such as ``{epoch}-{step}``, which is the default, or
            ``{epoch:02d}-{val/acc:.2f}``. A slash in the name of a metric becomes an underscore.
        monitor: Metric that decides which is the best, such as val/acc. Left out, each new one
            replaces the last one.
        mode: Whether a lower or a higher value is better. Left out, it is the metric's known
            direction.
        save_last: Whether to write ``last.ckpt``, which runs are resumed from.
        every_n_train_steps: Also write ``last.ckpt`` within epochs, whenever this number of
            optimizer steps is done.
        every_minutes: Also write ``last.ckpt`` within epochs, when it is this many minutes old.
            null: never.
        options: Lightning's others, such as ``save_top_k`` and ``every_n_epochs`` for the best
            ones.

    Raises:
        UserError: If the folder is remote; in a fit, if the mode is wrong for the metric, or is
            left out and not known.
    """

    section = "checkpoint"  # of the config

    def __init__(
        self,
        dirpath: str | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        mode: Literal["min", "max"] | None = None,
        save_last: bool = True,
        every_n_train_steps: PositiveInt | None = None,
        every_minutes: PositiveFloat | None = 30.0,
        **options: Any,
    ) -> None:
        check_local(dirpath or "")
        super().__init__(
            dirpath,
            filename,
            monitor,
            mode=mode or "min",
            every_n_train_steps=None,
            train_time_interval=None,
            # A resumed run writes the same names again: no second file with -v1 beside the first
            enable_version_counter=False,
            **options,
        )
        # Lightning's own attributes stay empty: it would write a last.ckpt at its own times
        self.keeps_last = save_last
        self.every_n_train_steps = every_n_train_steps
        self.every_minutes = every_minutes
        self.configured_mode = mode
        self._first_epoch = 0  # since the run was started or resumed
        self.step_saved = 0  # after which the newest of the best ones was written
        self.step_of_last = 0  # and that of last.ckpt, with its time
        self._time_of_last = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Runs may share checkpoint.dirpath: each gets a folder in it
        folder = run_folder(trainer)  # on every rank: it is broadcast
        if stage == "fit" and trainer.is_global_zero and self.dirpath and folder:
            run = RunFolder(folder)
            if run.is_run():
                run.link_checkpoints(Path(self.dirpath))
                self.dirpath = None  # which is the run's
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return

        # Before all callbacks: some change the model where an epoch starts or the run ends
        precede(trainer.fit_loop, "on_advance_start", lambda: self._write_between_epochs(trainer))
        precede(trainer.fit_loop, "on_run_end", lambda: self._write_at_end(trainer))

        # A mode that was left out was taken for min until now, whose worst score is +inf, not -inf
        if self.monitor is not None:
            mode = choose_mode("checkpoint.mode", self.configured_mode, self.monitor, pl_module)
            if mode != self.mode:
                self.mode, self.kth_value = mode, -self.kth_value

    def format_checkpoint_name(
        self, metrics: dict[str, Any], *arguments: Any, **options: Any
    ) -> str:
        """Fill in a file name, as a best one is about to be written; slashes in names of metrics,
        which would make folders, become underscores.
        """
        # Nothing but the writing of a best one asks for a name
        self.step_saved = int(metrics.get("step", 0))
        path = super().format_checkpoint_name(metrics, *arguments, **options)
        folder = os.path.join(self.dirpath, "") if self.dirpath else ""
        return folder + path[len(folder) :].replace("/", "_")

    def _should_remove_checkpoint(self, trainer: Trainer, previous: str, current: str) -> bool:
        # There is no public hook. Lightning would leave the one that a run was resumed from.
        return previous != current

    # The last state

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_epoch = trainer.current_epoch
        self._begin_interval(trainer)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        steps = trainer.global_step - self.step_of_last
        if not steps or not self.keeps_last:
            return
        is_due = self.every_n_train_steps is not None and steps >= self.every_n_train_steps
        # `_is_late` asks all ranks: all of them must come there, or none. What stands before it is
        # the same on every rank
        if (is_due or ends_within_epoch(trainer) or self._is_late(trainer)) and can_save(trainer):
            self.write_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        # The run ends here, within an epoch: after this hook Lightning counts the epoch as complete
        if trainer.state.fn == "fit" and not trainer.sanity_checking and ends_within_epoch(trainer):
            self.write_last(trainer)

    def _write_between_epochs(self, trainer: Trainer) -> None:
        # As the first epoch begins, its state is that of the checkpoint, or that of a new run
        if trainer.current_epoch > self._first_epoch:
            self.write_last(trainer)

    def _write_at_end(self, trainer: Trainer) -> None:
        # If they are equal, the run ended within an epoch, and last.ckpt was written there
        if trainer.global_step != self.step_of_last:
            self.write_last(trainer)

    def write_last(self, trainer: Trainer) -> None:
        """Write ``last.ckpt``, unless the run keeps none."""
        if self.keeps_last and not trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            write_last_checkpoint(trainer, self)
            self._begin_interval(trainer)

    def _is_late(self, trainer: Trainer) -> bool:
        # Clocks differ, and ranks must save together: they tell each other, but not at every step
        is_asked = trainer.world_size == 1 or trainer.global_step % EVERY_STEPS == 0
        if self.every_minutes is None or not is_asked:
            return False
        is_late = time.monotonic() - self._time_of_last >= 60 * self.every_minutes
        return trainer.strategy.reduce_boolean_decision(is_late, all=False)

    def _begin_interval(self, trainer: Trainer) -> None:
        self.step_of_last = trainer.global_step
        self._time_of_last = time.monotonic()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Find the checkpoints in the run's folder, which may have been moved; those of another run
        are not found.
        """

        def find(path: str) -> str:
            return path and os.path.join(str(self.dirpath), os.path.basename(path))

        # All of them or none: without its files the callback's scores would refer to nothing
        models = {find(path): score for path, score in state_dict["best_k_models"].items()}
        if all(map(os.path.isfile, models)):
            paths = {name: find(state_dict[name]) for name in PATHS}
            super().load_state_dict(
                {**state_dict, **paths, "dirpath": self.dirpath, "best_k_models": models}
            )


def write_last_checkpoint(trainer: Trainer, callback: ModelCheckpoint) -> None:
    """Write ``last.ckpt`` of a callback now, wherever training is."""
    for logger in trainer.loggers:
        logger.save()  # a resumed run does not log again what was logged before the checkpoint
    # The callback's state in the checkpoint has to name the file, or a resumed run would not
    # overwrite it.
    name = callback.CHECKPOINT_NAME_LAST + callback.FILE_EXTENSION
    callback.last_model_path = os.path.join(callback.dirpath or "", name)
    trainer.save_checkpoint(callback.last_model_path, callback.save_weights_only)
