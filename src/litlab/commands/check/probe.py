"""A callback that checks the first steps of a fit, times some more and one validation, and ends
it.
"""

import math
import time
from collections.abc import Generator
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from litlab.errors import UserError
from litlab.util.device import synchronize
from litlab.util.steps import Enough, LapTimer, describe_batch, epoch_steps, is_finite
from litlab.util.text import format_column, some

WARM_UP = 2  # optimizer steps that are checked, not timed
SECONDS = 5.0  # for the timed steps, approximately; and for the validation
FAR_OFF = 2.0  # times the loss of a guess: a start this high gets a warning


class Probe(LapTimer):
    """Finds out whether a run works and how fast it is, by steps of its first epoch; `facts` are
    rows of the table.
    """

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[tuple[str, str]] = []
        self.step_seconds = self.validation_seconds = 0.0
        self.validation_batches = 0
        self._guess: Any = None  # the loss of one
        self._is_bad_input = False
        self._norms: dict[str, float] = {}  # of gradients, by parameter
        self._hooks: list[RemovableHandle] = []

    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[int, float, None]:
        # The first steps show whether it works
        seconds = 0.0
        for _ in range(int(min(WARM_UP, epoch_steps(trainer)))):
            if seconds < SECONDS:
                seconds = self.step_seconds = yield 1  # until there is a better one
                self._check_gradients(trainer)
        self._check_parameters(pl_module)
        for hook in self._hooks:
            hook.remove()

        # The next ones show how long it takes, unless they are slow
        if (steps := int(min(SECONDS / seconds, epoch_steps(trainer) - WARM_UP))) > 0:
            self.step_seconds = yield steps
        trainer.should_stop = True  # a validation follows

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0:
            self.facts += [("training batch", describe_batch(batch))]
            self._is_bad_input = not is_finite(batch)
            self._watch_gradients(pl_module)
            if hasattr(pl_module, "expected_loss"):
                with torch.no_grad():
                    self._guess = pl_module.expected_loss(batch)  # pyright: ignore[reportCallIssue]
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)

    def _watch_gradients(self, pl_module: LightningModule) -> None:
        """Add up the norms by hooks, as a callback may free each gradient before all of them are
        there.
        """

        def add_norm(name: str, gradient: Tensor) -> None:
            self._norms[name] = self._norms.get(name, 0.0) + gradient.float().norm().item()

        for name, parameter in pl_module.named_parameters():
            if parameter.requires_grad:
                self._hooks.append(parameter.register_hook(partial(add_norm, name)))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._left == 1 and outputs:  # at the end of a lap the device is waited for anyway
            # Lightning divides it
            self._check_loss(outputs["loss"].mean().item() * trainer.accumulate_grad_batches)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def _check_loss(self, loss: float) -> None:
        is_first = len(self.facts) == 1
        if not math.isfinite(loss):
            reason = (
                "though the batch is finite; check the network, its initial weights and "
                "trainer.precision"
            )
            if not is_first:
                reason = (
                    "though the first one was finite; lower model.optimizer.lr, or set "
                    "trainer.gradient_clip_val"
                )
            if self._is_bad_input:
                reason = "as the first training batch holds NaN or infinity; correct the data"
            raise UserError(f"model: the loss is {loss} in the first steps, {reason}")
        if not is_first:
            return
        start, guess = format_column([loss, self._guess])
        self.facts += [("loss at start", start)]
        if self._guess is not None:
            times = loss / self._guess
            self.facts += [("loss of a guess", guess)]
            # A lower one is not a fault: a network may start from a baseline, or from trained
            # weights.
            advice = "check the scale of the inputs and of the network's last layer"
            if times > FAR_OFF:
                self.facts += [
                    (
                        "warning",
                        f"the loss starts {times:.1f} times as high as that of a guess; {advice}",
                    )
                ]

    def _check_gradients(self, trainer: Trainer) -> None:
        # It finds its scale by infinite ones
        if getattr(trainer.precision_plugin, "scaler", None) is not None:
            return
        for name, norm in self._norms.items():
            if not math.isfinite(norm):
                raise UserError(
                    f"model: the gradient of {name} is not finite in the first steps, although the "
                    "loss is; check that part of the network, and trainer.precision"
                )

    def _check_parameters(self, pl_module: LightningModule) -> None:
        sizes = {name: parameter.numel() for name, parameter in pl_module.named_parameters()}
        trained = [
            name for name, parameter in pl_module.named_parameters() if parameter.requires_grad
        ]
        count = (
            f"{sum(sizes.values()):,} parameters, {sum(sizes[name] for name in trained):,} of them "
            "trained"
        )
        self.facts += [("model", f"{type(pl_module).__name__}: {count}")]
        missing = [name for name in trained if name not in self._norms]
        if missing:
            raise UserError(
                f"model: no gradient reaches {some(missing)}; use them in training_step, remove "
                "them, or set their requires_grad to False"
            )
        zero = [name for name in trained if self._norms[name] == 0]
        if zero:
            self.facts += [("warning", f"the gradient of {some(zero)} is zero in the first steps")]

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = True  # the epoch of a stream may be over before the steps are
        self._clock = time.perf_counter()

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        self.validation_batches += 1
        # The rest of a long validation is like its beginning
        if time.perf_counter() - self._clock > SECONDS:
            self.on_validation_end(trainer, pl_module)
            self.validation_seconds *= sum(trainer.num_val_batches) / self.validation_batches
            raise Enough

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        synchronize(trainer.strategy.root_device)
        self.validation_seconds = time.perf_counter() - self._clock
