"""Which checkpoints a run keeps: the best by a metric of the validation, and the last state."""

import os
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from project.errors import UserError, one_line

LONGEST = 180  # bytes of a file's name; systems allow 255, and a temporary file adds to it


class RunCheckpoint(ModelCheckpoint):
    """Keep the best checkpoints after validations, and ``last.ckpt`` after every one of them, and as often as wished.

    Lightning's ModelCheckpoint (2.6.6) writes ``last.ckpt`` only where a best one is written: a run that gets no better
    would be resumed from long ago. Asked for a checkpoint every so many steps, it judges the weights of that step by
    the metric of an earlier validation, and writes none after validations.

    Args:
        dirpath: Folder. Left out, ``checkpoints`` in the run folder.
        filename: Name of the best ones, such as ``{epoch}-{step}``, which is the default, or
            ``{epoch:02d}-{val/acc:.2f}``. A slash in the name of a metric becomes an underscore.
        monitor: Metric that tells the best, such as val/acc. Left out, each new one replaces the one before.
        mode: Whether less or more of it is better.
        save_top_k: Number of best ones to keep; 0 for none, -1 for all.
        save_last: Whether to write ``last.ckpt``, which runs are resumed from.
        every_n_epochs: Epochs between checkpoints.
        every_n_train_steps: Write ``last.ckpt`` within epochs too, after every so many optimizer steps.
        train_time_interval: Write ``last.ckpt`` within epochs too, after so much time, such as 00:10:00.
        save_weights_only: Whether to leave out the state of optimizer and run, which then can't be resumed.
        auto_insert_metric_name: Whether ``{epoch}`` in a filename becomes ``epoch=3``, not ``3``.

    Raises:
        UserError: If a number of steps or epochs is below 1, or the filename can't be one.
    """

    def __init__(
        self,
        dirpath: str | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        mode: Literal["min", "max"] = "min",
        save_top_k: int = 1,
        save_last: bool = True,
        every_n_epochs: int = 1,
        every_n_train_steps: int | None = None,
        train_time_interval: timedelta | None = None,
        save_weights_only: bool = False,
        auto_insert_metric_name: bool = True,
    ) -> None:
        if dirpath is not None and not dirpath.strip():
            raise UserError("checkpoint.dirpath is empty: give a folder, or leave it out.")
        if filename is not None:
            check_name(filename)
        for name, value in (("every_n_epochs", every_n_epochs), ("every_n_train_steps", every_n_train_steps)):
            if value is not None and value < 1:
                raise UserError(f"checkpoint.{name} is {value}: it must be at least 1.")
        super().__init__(
            dirpath,
            filename,
            monitor,
            save_last=save_last,
            save_top_k=save_top_k,
            save_weights_only=save_weights_only,
            mode=mode,
            every_n_epochs=every_n_epochs,
            auto_insert_metric_name=auto_insert_metric_name,
            enable_version_counter=False,  # a resumed run writes what it had written before it was killed
        )
        self.every_n_train_steps = every_n_train_steps
        self.train_time_interval = train_time_interval
        self._step_of_last = 0
        self._time_of_last = 0.0

    def format_checkpoint_name(
        self,
        metrics: dict[str, Tensor],
        filename: str | None = None,
        ver: int | None = None,
        prefix: str | None = None,
    ) -> str:
        """Fill in a file name; slashes in names of metrics, which would make folders, become underscores."""
        path = super().format_checkpoint_name(metrics, filename, ver, prefix)
        folder = os.path.join(self.dirpath, "") if self.dirpath else ""
        return folder + path[len(folder) :].replace("/", "_")

    @property
    def within_epochs(self) -> bool:
        """Whether ``last.ckpt`` is written within epochs too."""
        return self.save_last is True and bool(self.every_n_train_steps or self.train_time_interval)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start counting."""
        self._step_of_last, self._time_of_last = trainer.global_step, time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write ``last.ckpt``, if it is time and an optimizer step is complete."""
        step = trainer.global_step
        if not self.within_epochs or step == self._step_of_last or trainer.fit_loop._should_accumulate():
            return
        due = bool(self.every_n_train_steps) and step % (self.every_n_train_steps or 1) == 0
        if self.train_time_interval is not None and not due:
            late = time.monotonic() - self._time_of_last >= self.train_time_interval.total_seconds()
            due = trainer.strategy.broadcast(late)  # clocks differ
        if due and not self._should_skip_saving_checkpoint(trainer):
            before = self._last_global_step_saved
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))
            self._last_global_step_saved = before  # a validation that follows still has to be judged

    def _save_topk_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        super()._save_topk_checkpoint(trainer, monitor_candidates)
        self._last_global_step_saved = trainer.global_step  # also where none is among the best: so the last is written

    def _save_last_checkpoint(self, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        super()._save_last_checkpoint(trainer, monitor_candidates)
        self._step_of_last, self._time_of_last = trainer.global_step, time.monotonic()

    def _should_remove_checkpoint(self, trainer: Trainer, previous: str, current: str) -> bool:
        # Lightning keeps the one that the run was resumed from for good, though a better one has replaced it.
        folder = Path(self.dirpath or ".").absolute()
        return previous != current and folder in Path(previous).absolute().parents


def check_name(filename: str, with_slashes: bool = False) -> None:
    """Refuses what is no name of a file, before an epoch is spent on it.

    Args:
        filename: As ModelCheckpoint takes it.
        with_slashes: Whether names of metrics would come into it as they are, as with Lightning's own ModelCheckpoint.

    Raises:
        UserError: If it can't be one.
    """
    if with_slashes and "/" in filename:
        raise UserError(
            f"ModelCheckpoint.filename: {filename!r} makes folders, where no run looks for them: use the section "
            "checkpoint, which writes an underscore for a slash, or set auto_insert_metric_name: false."
        )
    plain = re.sub(r"\{[^{}]*\}", "", filename)  # metrics may have slashes in their names
    if not filename.strip() or "/" in plain or os.sep in plain or not plain.isprintable() or set(filename) <= {"."}:
        raise UserError(
            f"checkpoint.filename: {filename!r} is no name of a file: name a folder by checkpoint.dirpath, and leave "
            ".ckpt out."
        )
    if filename == ModelCheckpoint.CHECKPOINT_NAME_LAST:
        raise UserError("checkpoint.filename: 'last' is the name of the last checkpoint: choose another one.")
    fields = re.findall(r"\{([^{}:]*)", filename)
    values = {name: torch.tensor(0) if name in ("epoch", "step") else torch.tensor(0.5) for name in fields}
    try:
        name = ModelCheckpoint()._format_checkpoint_name(filename, values)
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        raise UserError(
            f"checkpoint.filename: {filename!r} can't be filled in ({one_line(error)}): write {{epoch:02d}}, say."
        ) from error
    if len(os.fsencode(name)) > LONGEST:
        raise UserError(f"checkpoint.filename: '{filename[:40]}...' is too long: {LONGEST} bytes are possible.")
