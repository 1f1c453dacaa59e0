"""How long a run is, and how large its checkpoints are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor

from litlab.callbacks.averaging import AveragedWeights
from litlab.util.optimizer_steps import steps_of_epochs, whole_epochs
from litlab.util.torch_files import stored_parts


@dataclass(frozen=True)
class Length:
    """The steps and validations of a run that does not stop early; inf if there is no limit, or it is not known."""

    steps_per_epoch: float  # optimizer steps
    steps: float
    validations: float

    def __str__(self) -> str:
        steps = f"{self.steps:,.0f} steps" if math.isfinite(self.steps) else "steps without end"
        if math.isfinite(self.steps_per_epoch):
            epochs = self.steps / self.steps_per_epoch
            count = f"{epochs:,.4g} epochs of" if math.isfinite(epochs) else "epochs of"
            steps = f"{steps}: {count} {self.steps_per_epoch:,.0f}"
        return f"{steps}; {self.validations:,.0f} validations" if math.isfinite(self.validations) else steps


def run_length(run: Trainer, batches: float, validated: bool) -> Length:
    """Return the length of a run by its settings.

    Args:
        run: Its Trainer. Validations by time (``val_check_interval``) are not counted.
        batches: Training batches of an epoch, for a single process and under its limit; inf where it is not known.
        validated: Whether there are validation batches.
    """
    if isinstance(run.limit_train_batches, float) and math.isfinite(batches):  # a number is for each process
        batches = max(1, batches // (run.num_devices * run.num_nodes))
    epochs, steps = run.max_epochs, run.max_steps if run.max_steps >= 0 else math.inf
    if epochs is not None and epochs >= 0:
        steps = min(steps_of_epochs(run, batches, 0, epochs), steps)
    per_epoch = steps_of_epochs(run, batches, 0, 1)
    every = getattr(run, "val_check_interval", None)  # missing where it is a time
    if every is None or not validated:
        return Length(per_epoch, steps, 0)
    if math.isinf(steps) or math.isinf(batches):
        return Length(per_epoch, steps, math.inf)
    whole, rest = whole_epochs(run, int(batches), int(steps))  # the rest where max_steps ends an epoch
    if run.check_val_every_n_epoch is None:  # every that many batches, across epochs
        return Length(per_epoch, steps, (whole * batches + rest) // every)
    interval = every if isinstance(every, int) else max(1, int(batches * every))
    due = (whole + 1) % run.check_val_every_n_epoch == 0  # whether the last, shortened epoch is validated
    validations = whole // run.check_val_every_n_epoch * (batches // interval) + due * (rest // interval)
    return Length(per_epoch, steps, validations)


def checkpoint_bytes(run: Trainer, second: Trainer, model: LightningModule, data: LightningDataModule) -> int:
    """Return the bytes of a checkpoint: weights, their average if one is kept, optimizer state, what the data adds.

    Args:
        run: The Trainer of the run.
        second: A Trainer that has made a few steps.
        model: The module that it trained.
        data: The data.
    """
    weights = _count_bytes(model.state_dict())
    if getattr(run.checkpoint_callback, "save_weights_only", False):
        return weights + _count_bytes(data.state_dict())
    averaged = any(isinstance(callback, AveragedWeights | WeightAveraging) for callback in run.callbacks)  # pyright: ignore[reportAttributeAccessIssue]
    states = [optimizer.state_dict() for optimizer in second.optimizers]
    return weights * (1 + averaged) + _count_bytes(states) + _count_bytes(data.state_dict())


def _count_bytes(value: Any) -> int:
    """Return the bytes of tensors as they are stored; numbers beside them are few."""
    if isinstance(value, Tensor):
        return sum(part.nbytes for part in stored_parts(value))
    if isinstance(value, Mapping):
        return sum(map(_count_bytes, value.values()))
    return sum(map(_count_bytes, value)) if isinstance(value, list | tuple) else 0
