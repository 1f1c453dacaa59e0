"""Times and measures a few training steps."""

import time
from typing import Any

import psutil
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from litlab.callbacks.memory import count_samples
from litlab.util.device import GIB, synchronize

STEPS = 3  # optimizer steps that are timed
SECONDS = 2.0  # after which fewer are enough


class FewSteps(Callback):
    """Take one optimizer step to warm up and up to three more by the clock, then stop.

    The first step makes the optimizer's state, so that all memory is in use from the second on.
    """

    def __init__(self) -> None:
        self.samples = 0  # of the steps that were timed
        self.seconds = 0.0  # that they took, loading included
        self.gib = 0.0  # peak of the device's memory, or resident memory without one
        self.is_all = False  # whether an epoch is one batch
        self._steps = 0
        self._start = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the length of an epoch."""
        self.is_all = trainer.num_training_batches <= 1

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Look at the memory while all activations are there."""
        self._look(trainer)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Look at the memory while all gradients are there."""
        self._look(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch; stop after enough steps."""
        if self._start:
            self.samples += count_samples(batch)
        if trainer.global_step == self._steps:
            return  # gradients are being accumulated
        self._steps = trainer.global_step
        synchronize(trainer.strategy.root_device)
        now = time.perf_counter()
        if not self._start:
            self._start = now
            return
        self.seconds = now - self._start
        trainer.should_stop = self._steps > STEPS or self.seconds > SECONDS

    def _look(self, trainer: Trainer) -> None:
        device = trainer.strategy.root_device
        if device.type == "cuda":
            used = torch.cuda.max_memory_reserved(device)
        elif device.type == "mps":
            used = torch.mps.driver_allocated_memory()
        else:
            used = psutil.Process().memory_info().rss
        self.gib = max(self.gib, used / GIB)
