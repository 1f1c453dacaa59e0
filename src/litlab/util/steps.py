"""The optimizer steps of a run: how many there are, and a callback that times some of them all over the training."""

import math
import time
from abc import abstractmethod
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from litlab.util.device import synchronize

# Fractions of the training after which steps are timed: a late step may cost more than an early one, as with images
# that grow. The late ones come first: where there is time for one only, it should not be too cheap.
POINTS = (0.9, 0.1, 0.5, 0.3, 0.7)


def count_steps(trainer: Trainer, batches: float, epochs: float) -> float:
    """Return the optimizer steps of the first epochs; the last step of each may have fewer batches than the others.

    Args:
        trainer: The trainer.
        batches: Training batches of an epoch; inf where it is not known.
        epochs: How many epochs; inf for a run without an end.
    """
    if math.isinf(batches) or math.isinf(epochs):
        return math.inf if epochs else 0
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, GradientAccumulationScheduler):
            sizes = map(callback.get_accumulate_grad_batches, range(int(epochs)))
            return sum(math.ceil(batches / size) for size in sizes)
    return epochs * math.ceil(batches / trainer.accumulate_grad_batches)


def steps_of_run(trainer: Trainer) -> float:
    """Return the optimizer steps of a fit; inf if it has no end, or its end is not known.

    ``trainer.estimated_stepping_batches`` (Lightning 2.6.6) is the same, except that it takes the accumulation of the
    epoch it is asked in for that of all epochs.
    """
    estimate = trainer.estimated_stepping_batches  # loads the data, if need be
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if epochs is None or epochs < 0 or math.isinf(batches):
        return estimate if estimate > 0 else math.inf  # batches without a number
    steps = count_steps(trainer, batches, max(epochs, 1))
    return steps if trainer.max_steps == -1 else min(steps, trainer.max_steps)


def epoch_steps(trainer: Trainer) -> float:
    """Return the optimizer steps of the first epoch."""
    return min(count_steps(trainer, trainer.num_training_batches, 1), steps_of_run(trainer))


def step_at(trainer: Trainer, point: float, steps: int) -> int | None:
    """Return the global step at a fraction of the training, with room for some steps; None where it can't be set."""
    total = steps_of_run(trainer)
    if math.isinf(total) or not trainer.lightning_module.automatic_optimization:
        return None
    return max(0, round(min(point * total, total - steps)))


class Enough(Exception):
    """Enough steps were timed: leave the fit."""


@dataclass(frozen=True)
class Lap:
    """Consecutive optimizer steps: how many, and the global step that the run pretends to be at before them."""

    steps: int
    at: int | None = None


class LapTimer(Callback):
    """Time the laps that a subclass asks for. The device is waited for at their borders alone.

    For a lap at another point of the training it sets ``trainer.global_step``. Batches, epoch and learning rate stay as
    they are.

    Args:
        freeze: The `Freeze` of the run, if there is one: it follows the steps that the run pretends to be at.
    """

    def __init__(self, freeze: Any = None) -> None:
        self._freeze = freeze
        self._laps: Generator[Lap, float, None]
        self._lap = Lap(1)
        self._left = 1  # steps of this lap
        self._step = 0  # global step
        self._clock = time.perf_counter()

    @abstractmethod
    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[Lap, float, None]:
        """Yield one lap after another; each yield returns how many seconds a step of the lap took."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._laps = self.laps(trainer, pl_module)
        self._begin(next(self._laps), trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0 and self._step == 0:
            self._clock = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._step:
            return  # gradients are being accumulated
        self._left -= 1
        if self._left == 0:
            synchronize(trainer.strategy.root_device)
            seconds = (time.perf_counter() - self._clock) / self._lap.steps
            with suppress(StopIteration):
                self._begin(self._laps.send(seconds), trainer, pl_module)
            self._clock = time.perf_counter()
        self._step = trainer.global_step

    def _begin(self, lap: Lap, trainer: Trainer, pl_module: LightningModule) -> None:
        self._lap, self._left = lap, lap.steps
        if lap.at is None:
            return
        total = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
        total.ready = total.completed = lap.at
        if self._freeze is not None:
            self._freeze.apply(trainer, pl_module, lap.at // epoch_steps(trainer))
