"""The optimizer steps of a run: what a batch holds, how many there are, which batch is next, and a
callback that times the first steps.
"""

import math
import time
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.optim import Optimizer

from litlab.util.device import synchronize


def count_steps(trainer: Trainer, batches: float, epochs: float) -> float:
    """Return the optimizer steps of the first epochs; the last step of each may have fewer batches
    than the others.

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

    ``trainer.estimated_stepping_batches`` (Lightning 2.6.6) is the same, except that it takes the
    accumulation of the epoch it is asked in for that of all epochs.
    """
    limit = math.inf if trainer.max_steps == -1 else trainer.max_steps
    if trainer.max_epochs == -1:
        return limit
    trainer.fit_loop.setup_data()  # if it is not there yet
    return min(limit, count_steps(trainer, trainer.num_training_batches, trainer.max_epochs or 1))


def epochs_of_run(trainer: Trainer) -> float:
    """Return the epochs of a fit, with the share of a last one that ``trainer.max_steps`` cuts
    short.

    Lightning sets ``trainer.max_epochs`` to -1 where only ``max_steps`` or ``max_time`` is given.
    inf if the fit has no end, or its end is not known.
    """
    trainer.fit_loop.setup_data()  # if it is not there yet
    limit = math.inf if trainer.max_epochs == -1 else trainer.max_epochs or 0
    steps, batches = steps_of_run(trainer), trainer.num_training_batches
    if math.isinf(steps) or not 0 < batches < math.inf:
        return limit
    whole = bisect_right(
        range(1, int(steps) + 1), steps, key=lambda n: count_steps(trainer, batches, n)
    )
    before, after = count_steps(trainer, batches, whole), count_steps(trainer, batches, whole + 1)
    return min(limit, whole + (steps - before) / (after - before))


def remove_end(trainer: Trainer) -> None:
    """Let a fit that has begun go on until it is stopped, without its schedules."""
    trainer.fit_loop.max_epochs = trainer.fit_loop.epoch_loop.max_steps = -1
    # Some can't go on after the end, or want a validation's metric
    trainer.strategy.lr_scheduler_configs = []


def find_progress(trainer: Trainer) -> tuple[int, int]:
    """Return epoch and batch that a resumed run continues with."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress
    if epochs.started == epochs.processed:  # the next epoch has not begun
        return epochs.processed, 0
    if batches.is_last_batch and batches.total.completed < batches.total.processed:
        # Saved within the last batch: Lightning counts the epoch as complete
        return epochs.processed + 1, 0
    return epochs.processed, batches.current.ready


def epoch_steps(trainer: Trainer) -> float:
    """Return the optimizer steps of the first epoch."""
    return min(count_steps(trainer, trainer.num_training_batches, 1), steps_of_run(trainer))


def is_part_of_step(callback: Callback) -> bool:
    """Return whether a callback changes what an optimizer step is, and so belongs wherever some are
    tried.

    A callback says so by ``part_of_step = True``, a class attribute.
    """
    return isinstance(callback, GradientAccumulationScheduler) or getattr(
        callback, "part_of_step", False
    )


def free_gradients(optimizer: Optimizer) -> None:
    """Free all gradients, in a tenth of the 30 µs that torch's ``zero_grad`` takes."""
    if type(optimizer).zero_grad is not Optimizer.zero_grad:  # torchao's CPUOffloadOptimizer
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


class Enough(Exception):
    """Enough steps were taken: leave the fit."""


class LapTimer(Callback):
    """Time laps of consecutive optimizer steps, from the first on. The device is waited for at
    their ends alone.
    """

    def __init__(self) -> None:
        self._laps: Any = None
        self._steps = self._left = 0  # of this lap
        self._global_step = 0
        self._clock = time.perf_counter()

    @abstractmethod
    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[int, float, None]:
        """Yield the steps of one lap after another; each yield returns how many seconds one of them
        took.
        """

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._laps is None:
            self._laps = self.laps(trainer, pl_module)
            self._begin(None)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if trainer.global_step == self._global_step:
            return  # gradients are being accumulated
        self._global_step = trainer.global_step
        self._left -= 1
        if self._left == 0:
            synchronize(trainer.strategy.root_device)
            self._begin((time.perf_counter() - self._clock) / self._steps)

    def _begin(self, seconds: float | None) -> None:
        with suppress(StopIteration):
            self._steps = self._left = self._laps.send(seconds)
        self._clock = time.perf_counter()


def tensors(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch, itself one or a tuple, list or dict that holds some, as deep
    as need be.
    """
    leaves: list[Tensor] = []
    apply_to_collection(batch, Tensor, leaves.append)
    return leaves


def describe_batch(batch: Any) -> str:
    """Return types and shapes of the tensors of a batch."""
    return ", ".join(
        f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        for tensor in tensors(batch)
    )


def is_finite(batch: Any) -> bool:
    """Return whether no tensor of a batch holds a NaN or infinity."""
    return all(bool(tensor.isfinite().all()) for tensor in tensors(batch))


def count_samples(batch: Any) -> int:
    """Return the number of samples in a batch: the size of the first dimension of its first tensor,
    or 0.
    """
    return next((len(tensor) if tensor.ndim else 0 for tensor in tensors(batch)), 0)
