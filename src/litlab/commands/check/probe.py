"""A callback that checks the first batches of a fit, times some of its steps and one validation, and ends it."""

import math
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from litlab.callbacks.batches import describe, not_finite
from litlab.errors import UserError
from litlab.util.device import peak_gib, synchronize
from litlab.util.steps import POINTS, Enough, Lap, LapTimer, epoch_steps, step_at
from litlab.util.text import some

WARM_UP = 2  # optimizer steps that are checked, not timed
SECONDS = 5.0  # for the timed steps, approximately; and for the validation


class Probe(LapTimer):
    """Find out whether a run works and how fast it is, from steps of its first epoch.

    Args:
        freeze: What is trained later, if anything is: it follows the steps that the run pretends to be at.

    Raises:
        UserError: In the first steps, if the loss or a gradient is not finite, or a trained parameter gets no gradient.
    """

    def __init__(self, freeze: Callback | None = None) -> None:
        super().__init__(freeze)
        self.training_batch = self.validation_batch = ""  # types and shapes
        self.first_batch_after = 0.0  # seconds
        self.parameters = self.trained = 0
        self.loss: float | None = None  # before the first step
        self.expected_loss: float | None = None
        self.no_gradient: list[str] = []  # trained parameters whose gradient was zero in all of the first steps
        self.step_seconds: float | None = None
        self.timed_steps = 0
        self.validation_batches: float = 0
        self.validation_seconds = 0.0
        self.memory_gib = 0.0  # peak
        self._warm = False  # whether the steps that are checked are over
        self._gradients: dict[str, bool] = {}  # whether any was other than zero
        self._spoilt = ""  # first parameter with a gradient that is not finite
        self._bad_input = ""  # tensors of the first batch that are not finite
        self._validated = 0  # batches

    # Training

    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[Lap, float, None]:
        """Yield the steps that are checked, then those that are timed; all in one epoch."""
        seconds = 0.0
        for _ in range(int(min(WARM_UP, epoch_steps(trainer)))):
            seconds = self.step_seconds = yield Lap(1)  # until there is a better one
            if seconds >= SECONDS:  # a slow step is enough of it
                break
        self._warm = True
        self._check_parameters(pl_module)
        means: list[float] = []  # seconds per step at each point
        for lap in _plan_timed_laps(trainer, seconds):
            seconds = yield lap
            if lap.timed:
                means.append(seconds)
                self.step_seconds = sum(means) / len(means)
                self.timed_steps += lap.steps

    def end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a validation follow, and be the end."""
        self.memory_gib = peak_gib(trainer)
        trainer.should_stop = True

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            self.first_batch_after = time.perf_counter() - self._clock
            self.training_batch = describe(batch)
            self._bad_input = not_finite(batch)
            with torch.no_grad():
                expect = getattr(pl_module, "expected_loss", None)
                self.expected_loss = None if expect is None else expect(batch)
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        if self._warm:
            return
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None  # it finds its scale by such gradients
        for name, parameter in pl_module.named_parameters():
            if (gradient := parameter.grad) is None:
                continue
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            self._gradients[name] = self._gradients.get(name, False) or bool(values.any())
            if not scaled and not values.isfinite().all():
                self._spoilt = self._spoilt or name

    def check_lap(self, outputs: Mapping[str, Any] | None) -> None:
        """Check the loss of the last step, and what was found of the gradients."""
        if isinstance(loss := (outputs or {}).get("loss"), Tensor):
            self._check_loss(loss.mean().item())
        if self._spoilt:
            raise UserError(
                f"model: the gradient of {self._spoilt} is not finite in the first steps, though the loss is; check "
                "what the network does there, and trainer.precision"
            )

    def _check_loss(self, value: float) -> None:
        if math.isfinite(value):
            self.loss = value if self.loss is None else self.loss
        elif self._bad_input:
            raise UserError(
                f"model: the loss is {value}, as the first training batch holds NaN or infinity in {self._bad_input}; "
                "correct the data"
            )
        elif self.loss is None:
            raise UserError(
                f"model: the loss is {value} in the first step, though the batch is finite; check the network, its "
                "initial weights and trainer.precision"
            )
        else:
            raise UserError(
                f"model: the loss is {value} after a few steps, though the first one was finite; lower "
                "model.optimizer.lr, or set trainer.gradient_clip_val"
            )

    def _check_parameters(self, pl_module: LightningModule) -> None:
        trained = {name: one.numel() for name, one in pl_module.named_parameters() if one.requires_grad}
        self.parameters, self.trained = sum(one.numel() for one in pl_module.parameters()), sum(trained.values())
        if missing := [name for name in trained if name not in self._gradients]:
            raise UserError(
                f"model: no gradient reaches {some(missing)}; let training_step use what they belong to, remove it, or "
                "set its requires_grad to False"
            )
        self.no_gradient = [name for name in trained if not self._gradients[name]]

    # Validation

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validation_batches = sum(trainer.num_val_batches)
        self._clock = time.perf_counter()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.validation_batch = self.validation_batch or describe(batch)

    def on_validation_batch_end(self, trainer: Trainer, *arguments: Any, **keywords: Any) -> None:
        """End a long validation, and assume that the rest of it is like its beginning."""
        self._validated += 1
        if time.perf_counter() - self._clock > SECONDS:
            self._end_validation(trainer, self._validated / self.validation_batches)
            raise Enough

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end_validation(trainer, 1.0)

    def _end_validation(self, trainer: Trainer, share: float) -> None:
        synchronize(trainer.strategy.root_device)
        seconds = time.perf_counter() - self._clock
        self.validation_seconds = seconds / share if share else math.inf
        self.memory_gib = max(self.memory_gib, peak_gib(trainer))


def _plan_timed_laps(trainer: Trainer, seconds: float) -> Iterator[Lap]:
    """Yield the steps after the warm-up: at each point one that is not timed, then some that are; all in one epoch."""
    left = epoch_steps(trainer) - WARM_UP
    if left < 2:
        return
    steps = max(2, int(min(SECONDS / seconds, left)))
    points = POINTS[: steps // 2]
    timed = steps // len(points) - 1
    for point in points:
        at = step_at(trainer, point, timed + 2)
        if seconds < SECONDS:
            yield Lap(1, at=at)
            yield Lap(timed, timed=True)
        else:
            yield Lap(timed, timed=True, at=at)
