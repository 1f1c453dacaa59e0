"""What a fit reports to the sweep that it is a trial of."""

import signal
import time
from multiprocessing.connection import Connection
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.runs.signals import Interrupted

SECONDS_BETWEEN_HEARTBEATS = 10.0

connection: Connection | None = None  # to the sweep, in the one process that it started


class TrialReport(Callback):
    """Report the metrics of each validation to the sweep, and end the training where it says so.

    The process that the sweep started, which is the first rank, reports; all ranks agree on the end, which is that of
    early stopping: the epoch's callbacks run, checkpoints are saved. Between validations a heartbeat is sent every
    10 seconds. A fit that finds the sweep gone ends at once and saves nothing: when it is resumed, it repeats the
    validation that was not heard.
    """

    def __init__(self) -> None:
        self._next_heartbeat = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Report the run folder."""
        folder = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if stage == "fit":
            self._send(run=folder)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Send a heartbeat, if one is due."""
        self._heartbeat()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Send a heartbeat, if one is due."""
        self._heartbeat()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the metrics, and ask whether to stop."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}  # reduces: on every rank
        stop = False
        if connection is not None:
            self._send(step=trainer.global_step, epoch=trainer.current_epoch, metrics=metrics)
            try:
                stop = connection.recv() == "stop"
            except (EOFError, OSError) as error:
                raise Interrupted(signal.SIGTERM) from error
        if trainer.strategy.reduce_boolean_decision(stop, all=False):
            trainer.should_stop = True

    def _heartbeat(self) -> None:
        if time.monotonic() >= self._next_heartbeat:
            self._send(alive=True)

    def _send(self, **message: Any) -> None:
        self._next_heartbeat = time.monotonic() + SECONDS_BETWEEN_HEARTBEATS
        if connection is not None:
            try:
                connection.send(message)
            except OSError as error:
                raise Interrupted(signal.SIGTERM) from error
