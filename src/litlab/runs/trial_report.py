"""What a fit tells the sweep that it is a trial of."""

import json
import os
import signal
import socket
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.runs.signals import Interrupted
from litlab.util.variables import TRIAL_ADDRESS

SECONDS_BETWEEN_SIGNS = 10.0


class TrialReport(Callback):
    """Report the metrics of each validation to the sweep's worker, and end the training where it says so.

    The first rank talks to the worker; all ranks agree on the end, which is that of early stopping: the epoch's
    callbacks run, checkpoints are saved. Between validations a sign of life is sent every 10 seconds. A fit whose
    worker is gone ends at once and saves nothing: resumed by another one, it repeats the validation that was not heard.
    """

    def __init__(self) -> None:
        self._worker: socket.socket | None = None  # on rank zero
        self._next_sign = 0.0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Tell where the run lies."""
        folder = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if stage == "fit" and trainer.is_global_zero:
            self._worker = socket.socket(socket.AF_UNIX)
            self._worker.connect(os.environ[TRIAL_ADDRESS])
            self._send(run=folder)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Give a sign of life."""
        self._live()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Give a sign of life."""
        self._live()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the metrics, and ask whether to go on."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}  # reduces: on every rank
        stop = False
        if self._worker is not None:
            self._send(step=trainer.global_step, epoch=trainer.current_epoch, metrics=metrics)
            stop = self._answer() == "stop"
        if trainer.strategy.reduce_boolean_decision(stop, all=False):
            trainer.should_stop = True

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Hang up."""
        if self._worker is not None and stage == "fit":
            self._worker.close()
            self._worker = None

    def _live(self) -> None:
        if self._worker is not None and time.monotonic() >= self._next_sign:
            self._send(alive=True)

    def _send(self, **message: Any) -> None:
        assert self._worker is not None
        self._next_sign = time.monotonic() + SECONDS_BETWEEN_SIGNS
        try:
            self._worker.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Interrupted(signal.SIGTERM) from error

    def _answer(self) -> str:
        assert self._worker is not None
        answer = b""
        while not answer.endswith(b"\n"):
            received = self._worker.recv(64)
            if not received:
                raise Interrupted(signal.SIGTERM)
            answer += received
        return answer.decode().strip()
