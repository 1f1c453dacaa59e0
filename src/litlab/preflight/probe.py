"""A callback that checks the first batches of a fit, times some of its steps and one validation, and ends it."""

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from litlab.callbacks import Freeze
from litlab.errors import UserError
from litlab.preflight.cost import optimizer_steps
from litlab.runs.recorder import peak_gib
from litlab.util.batches import describe, not_finite
from litlab.util.commands import some
from litlab.util.device import synchronize

WARM_UP = 2  # optimizer steps that are checked, not timed
# Fractions of the training after which steps are timed: a late step may cost more than an early one, as with images
# that grow. The late ones come first: where there is time for one only, it should not be too cheap.
POINTS = (0.9, 0.1, 0.5, 0.3, 0.7)
SECONDS = 5.0  # for the timed steps, approximately; and for the validation


class Enough(Exception):
    """A validation has been timed for long enough."""


@dataclass(frozen=True)
class Lap:
    """Consecutive optimizer steps: how many, whether they are timed, and the step that the run pretends to be at."""

    steps: int
    timed: bool = False
    at: int | None = None


class Probe(Callback):
    """Find out whether a run works and how fast it is, from steps of its first epoch.

    For the steps that it times it sets ``trainer.global_step`` forward to several points of the training. Batches,
    epoch and learning rate stay as they are.

    Args:
        freeze: What is trained later, if anything is: it follows the steps that the run pretends to be at.

    Raises:
        UserError: In the first steps, if the loss or a gradient is not finite, or a trained parameter gets no gradient.
    """

    def __init__(self, freeze: Freeze | None = None) -> None:
        self._freeze = freeze
        self.training_batch = ""  # types and shapes
        self.validation_batch = ""
        self.first_batch_after = 0.0  # seconds
        self.parameters = (0, 0)  # numbers in all, and of those that are trained
        self.loss: float | None = None  # before the first step
        self.expected_loss: float | None = None
        self.no_gradient: list[str] = []  # trained parameters whose gradient was zero in all of the first steps
        self.step_seconds: float | None = None
        self.timed_steps = 0
        self.validation_batches: float = 0
        self.validation_seconds = 0.0
        self.memory_gib = 0.0  # peak
        self._laps: deque[Lap] = deque()
        self._warm_up = WARM_UP  # steps of it that are left
        self._means: list[float] = []  # seconds per step at each point
        self._left = 1  # steps of this lap
        self._at = 0  # global step
        self._reached: set[str] = set()
        self._moved: set[str] = set()
        self._spoilt = ""  # first parameter with a gradient that is not finite
        self._bad_input = ""  # tensors of the first batch that are not finite
        self._clock = time.perf_counter()

    # Training

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find out how many steps there will be."""
        self._warm_up = int(min(WARM_UP, _steps(trainer)))
        self._laps = deque([Lap(1)] * self._warm_up)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Check the first batch before the model gets it."""
        if batch_idx == 0:
            self.first_batch_after = time.perf_counter() - self._clock
            self.training_batch = describe(batch)
            self._bad_input = not_finite(batch)
            with torch.no_grad():
                expect = getattr(pl_module, "expected_loss", None)
                self.expected_loss = None if expect is None else expect(batch)
            self._clock = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Check the gradients of the first steps."""
        if not self._warm_up:
            return
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None  # it finds its scale by such gradients
        for name, parameter in pl_module.named_parameters():
            if (gradient := parameter.grad) is None:
                continue
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            self._reached.add(name)
            if values.any():
                self._moved.add(name)
            if not scaled and not values.isfinite().all():
                self._spoilt = self._spoilt or name

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the optimizer steps; check and time those of a lap at its end."""
        if trainer.global_step == self._at:
            return  # gradients are being accumulated
        self._left -= 1
        if self._left == 0:
            self._end_lap(trainer, pl_module, outputs)
        self._at = trainer.global_step

    def _end_lap(self, trainer: Trainer, pl_module: LightningModule, outputs: Any) -> None:
        synchronize(trainer.strategy.root_device)
        lap = self._laps.popleft()
        seconds = (time.perf_counter() - self._clock) / lap.steps
        self._check_loss(outputs)
        if self._spoilt:
            raise UserError(
                f"model: the gradient of {self._spoilt} is not finite in the first steps, though the loss is; check "
                "what the network does there, and trainer.precision."
            )
        if lap.timed:
            self._means.append(seconds)
            self.step_seconds = sum(self._means) / len(self._means)
            self.timed_steps += lap.steps
        if self._warm_up:
            self._warm_up = self._warm_up - 1 if seconds < SECONDS else 0
            self.step_seconds = seconds  # until there is a better one
            if not self._warm_up:  # over; a slow step is enough of it
                self._check_parameters(pl_module)
                self._laps = deque(_laps(trainer, seconds))
        if self._laps:
            self._left = self._laps[0].steps
            if self._laps[0].at is not None:
                total = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
                total.ready = total.completed = at = self._laps[0].at
                if self._freeze is not None:
                    self._freeze.apply(trainer, pl_module, at // _steps(trainer))
        else:
            self.memory_gib = peak_gib(trainer)
            trainer.should_stop = True  # after a validation
        self._clock = time.perf_counter()

    def _check_loss(self, outputs: Mapping[str, Any] | None) -> None:
        if isinstance(loss := (outputs or {}).get("loss"), Tensor):
            value = loss.mean().item()
            if not math.isfinite(value):
                which = "in the first step" if self.loss is None else "after a few steps"
                raise UserError(f"model: the loss is {value} {which}{self._reason()}")
            if self.loss is None:
                self.loss = value

    def _check_parameters(self, pl_module: LightningModule) -> None:
        trained = {name: p for name, p in pl_module.named_parameters() if p.requires_grad}
        self.parameters = sum(p.numel() for p in pl_module.parameters()), sum(p.numel() for p in trained.values())
        if missing := [name for name in trained if name not in self._reached]:
            raise UserError(
                f"model: no gradient reaches {some(missing)}; let training_step use what they belong to, remove it, or "
                "set its requires_grad to False."
            )
        self.no_gradient = [name for name in trained if name not in self._moved]

    def _reason(self) -> str:
        if self._bad_input:
            return f", as the first training batch holds NaN or infinity in {self._bad_input}; correct the data."
        if self.loss is None:
            return ", though the batch is finite; check the network, its initial weights and trainer.precision."
        return ", though the first one was finite; lower model.optimizer.lr, or set trainer.gradient_clip_val."

    # Validation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self.validation_batches = sum(trainer.num_val_batches)
        self._clock = time.perf_counter()
        self._left = 0  # batches that were validated

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Describe the first batch."""
        self.validation_batch = self.validation_batch or describe(batch)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """End a long validation, and assume that the rest of it is like its beginning."""
        self._left += 1
        if time.perf_counter() - self._clock > SECONDS:
            self._end_validation(trainer, self._left / self.validation_batches)
            raise Enough

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock."""
        self._end_validation(trainer, 1.0)

    def _end_validation(self, trainer: Trainer, share: float) -> None:
        synchronize(trainer.strategy.root_device)
        seconds = time.perf_counter() - self._clock
        self.validation_seconds = seconds / share if share else math.inf
        self.memory_gib = max(self.memory_gib, peak_gib(trainer))


def _total_steps(trainer: Trainer) -> float:
    steps = trainer.estimated_stepping_batches
    return steps if steps > 0 else math.inf  # batches without a number


def _steps(trainer: Trainer) -> float:
    """Return the optimizer steps of the first epoch."""
    return min(optimizer_steps(trainer.num_training_batches, trainer.accumulate_grad_batches), _total_steps(trainer))


def _laps(trainer: Trainer, seconds: float) -> Iterator[Lap]:
    """Yield the steps after the warm-up: at each point one that is not timed, then some that are; all in one epoch."""
    left = _steps(trainer) - WARM_UP
    if left < 2:
        return
    steps = max(2, int(min(SECONDS / seconds, left)))
    points = POINTS[: steps // 2]
    timed = steps // len(points) - 1
    total = _total_steps(trainer)
    known = math.isfinite(total) and trainer.lightning_module.automatic_optimization
    for point in points:
        at = max(0, round(min(point * total, total - timed - 2))) if known else None
        if seconds < SECONDS:
            yield Lap(1, at=at)
            yield Lap(timed, timed=True)
        else:
            yield Lap(timed, timed=True, at=at)
