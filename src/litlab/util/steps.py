"""A callback that divides the first steps of a fit into laps, which it times, at several points of the training."""

import math
import time
from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.util.device import synchronize
from litlab.util.optimizer_steps import steps_of_epochs, steps_of_run

# Fractions of the training after which steps are timed: a late step may cost more than an early one, as with images
# that grow. The late ones come first: where there is time for one only, it should not be too cheap.
POINTS = (0.9, 0.1, 0.5, 0.3, 0.7)


class Enough(Exception):
    """A fit has been looked at for long enough."""


@dataclass(frozen=True)
class Lap:
    """Consecutive optimizer steps: how many, whether they are timed, and the step that the run pretends to be at."""

    steps: int
    timed: bool = False
    at: int | None = None


class LapTimer(Callback):
    """Time the laps that a subclass plans. The device is waited for at their borders alone.

    For a lap at another point of the training it sets ``trainer.global_step``. Batches, epoch and learning rate stay as
    they are.

    Args:
        freeze: The `Freeze` of the run, if there is one: it follows the steps that the run pretends to be at.
    """

    def __init__(self, freeze: Any = None) -> None:
        self._freeze = freeze
        self._plan: Generator[Lap, float, None]
        self._lap = Lap(1)
        self._left = 1  # steps of this lap
        self._at = 0  # global step
        self._clock = time.perf_counter()

    @abstractmethod
    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[Lap, float, None]:
        """Yield one lap after another; each yield returns how many seconds a step of the lap took."""

    @abstractmethod
    def end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the training: the last lap is over."""

    def check_lap(self, outputs: Any) -> None:
        """Look at what the last step of a lap returned, before the next lap is asked for."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ask for the first lap."""
        self._plan = self.laps(trainer, pl_module)
        self._begin(trainer, pl_module, next(self._plan))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start the clock at the first batch."""
        if batch_idx == 0 and self._at == 0:
            self._clock = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the optimizer steps; after the last one of a lap, stop the clock and begin the next lap."""
        if trainer.global_step == self._at:
            return  # gradients are being accumulated
        self._left -= 1
        if self._left == 0:
            synchronize(trainer.strategy.root_device)
            seconds = (time.perf_counter() - self._clock) / self._lap.steps
            self.check_lap(outputs)
            try:
                self._begin(trainer, pl_module, self._plan.send(seconds))
            except StopIteration:
                self.end(trainer, pl_module)
            self._clock = time.perf_counter()
        self._at = trainer.global_step

    def _begin(self, trainer: Trainer, pl_module: LightningModule, lap: Lap) -> None:
        self._lap, self._left = lap, lap.steps
        if lap.at is not None:
            total = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
            total.ready = total.completed = lap.at
            if self._freeze is not None:
                self._freeze.apply(trainer, pl_module, lap.at // epoch_steps(trainer))


def total_steps(trainer: Trainer) -> float:
    """Return the optimizer steps of the whole training; inf where there is no limit, or it is not known."""
    steps = steps_of_run(trainer)
    return steps if steps > 0 else math.inf  # batches without a number


def epoch_steps(trainer: Trainer) -> float:
    """Return the optimizer steps of the first epoch."""
    return min(steps_of_epochs(trainer, trainer.num_training_batches, 0, 1), total_steps(trainer))


def step_at(trainer: Trainer, point: float, steps: int) -> int | None:
    """Return the global step at a fraction of the training, with room for some steps; None where it can't be set."""
    total = total_steps(trainer)
    if math.isinf(total) or not trainer.lightning_module.automatic_optimization:
        return None
    return max(0, round(min(point * total, total - steps)))
