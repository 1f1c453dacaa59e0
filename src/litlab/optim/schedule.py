"""Learning-rate schedules that YAML describes and the run's length completes."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from litlab.errors import UserError
from litlab.util.refusals import refusals

ABSOLUTE_RATES = ("max_lr", "base_lr")  # of OneCycleLR and CyclicLR
# What torch's schedulers call the number of steps that they stretch over.
LENGTH_NAMES = ("total_steps", "T_max", "total_iters")


@dataclass
class Schedule:
    """When and how the learning rate changes.

    A scheduler's length is taken from the run when it is left out: ``T_max`` of ``CosineAnnealingLR``, ``total_steps``
    of ``OneCycleLR``, and any parameter of these names in a scheduler of your own.

    Args:
        scheduler: Any class of torch.optim.lr_scheduler, or your own, without its optimizer.
        interval: Step the scheduler after every optimizer step or after every epoch.
        frequency: Step it only every so many optimizer steps or epochs. With ReduceLROnPlateau and ``interval: step``,
            every so many batches of an epoch.
        monitor: Logged metric that ReduceLROnPlateau watches, such as val/loss.
    """

    # The second form is what a class matches that leaves its required length out: CosineAnnealingLR without T_max.
    scheduler: Callable[[Optimizer], LRScheduler] | Callable[[Optimizer, int], LRScheduler]
    interval: Literal["step", "epoch"] = "epoch"
    frequency: int = 1
    monitor: str | None = None

    def configure(self, optimizer: Optimizer, steps: float, epochs: int | None) -> dict[str, Any]:
        """Build the scheduler.

        Args:
            optimizer: The optimizer whose learning rate it drives.
            steps: Optimizer steps in the whole run, infinite if unknown.
            epochs: Epochs in the whole run, None if unknown.

        Returns:
            What ``LightningModule.configure_optimizers`` returns as ``lr_scheduler``.

        Raises:
            UserError: If an argument is missing, wrong, or would have to come from a run without a known length.
        """
        if self.frequency < 1:
            raise UserError(f"model.schedule.frequency: {self.frequency} is not valid; it must be at least 1")
        length = steps if self.interval == "step" else epochs
        missing = self.missing_length()
        arguments: dict[str, Any] = {}
        if missing is not None:
            if length == 0:
                raise UserError("trainer: the run has no steps; check max_steps, max_epochs and limit_train_batches")
            if length is None or length <= 0 or length == float("inf"):
                raise UserError(
                    f"model.schedule.scheduler: {missing} can't be taken from a run without an end; "
                    "set it, or trainer.max_epochs or trainer.max_steps"
                )
            arguments[missing] = max(1, int(length) // self.frequency)
        arguments |= self._scaled_rates(optimizer)
        with refusals("model.schedule.scheduler"):
            scheduler = self._call(optimizer, arguments)
        if isinstance(scheduler, ReduceLROnPlateau) and self.monitor is None:
            raise UserError(
                "model.schedule.monitor: it is not set; name the metric for ReduceLROnPlateau, such as val/loss"
            )
        # Lightning counts the batches of an epoch; `ExperimentModule.lr_scheduler_step` counts optimizer steps.
        counted = self.interval == "step" and not isinstance(scheduler, ReduceLROnPlateau)
        frequency = 1 if counted else self.frequency
        configured = {"scheduler": scheduler, "interval": self.interval, "frequency": frequency}
        return configured if self.monitor is None else {**configured, "monitor": self.monitor}

    def _parameters(self) -> dict[str, Any]:
        """Return the scheduler's arguments after the optimizer, ``inspect.Parameter.empty`` where one is missing."""
        given = dict(getattr(self.scheduler, "keywords", {}))
        scheduler_class = next((a for a in getattr(self.scheduler, "args", ()) if isinstance(a, type)), self.scheduler)
        parameters = list(inspect.signature(scheduler_class).parameters.values())
        if scheduler_class is not self.scheduler or parameters[0].name == "optimizer":
            parameters = parameters[1:]  # the optimizer is passed when the schedule is built
        return {p.name: given.get(p.name, p.default) for p in parameters}

    def missing_length(self) -> str | None:
        """Return the name of the scheduler's length if it is left out, to be taken from the run; None if not."""
        values = self._parameters()
        empty = [name for name, value in values.items() if value is inspect.Parameter.empty]
        if unknown := [name for name in empty if name not in LENGTH_NAMES]:
            raise UserError(f"model.schedule.scheduler: '{unknown[0]}' is not set; it is required")
        if values.get("epochs") is not None and values.get("steps_per_epoch") is not None:
            return None  # OneCycleLR's other way of saying how long it is
        return next((name for name in LENGTH_NAMES if name in values and (name in empty or values[name] is None)), None)

    def _scaled_rates(self, optimizer: Optimizer) -> dict[str, list[float]]:
        """Return the rates that OneCycleLR and CyclicLR set for all groups alike, scaled for each one."""
        scales = [group.get("lr_scale", 1.0) for group in optimizer.param_groups]
        given = self._parameters()
        rates = {name: given[name] for name in ABSOLUTE_RATES if isinstance(given.get(name), int | float)}
        return (
            {name: [rate * scale for scale in scales] for name, rate in rates.items()} if set(scales) != {1.0} else {}
        )

    def _call(self, optimizer: Optimizer, arguments: dict[str, Any]) -> LRScheduler:
        # Keywords given here replace the None that stands for them in what the command line built.
        return self.scheduler(optimizer, **arguments)  # pyright: ignore[reportCallIssue]
