"""Learning-rate schedules that YAML describes and the run's length completes."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, PolynomialLR, ReduceLROnPlateau, SequentialLR

from litlab.errors import UserError, building
from litlab.optim.recipe import arguments_of, plain_recipe
from litlab.types import PositiveFloat, PositiveInt
from litlab.util.metrics import choose_mode

KEY = "model.schedule.scheduler"
LENGTHS = ("total_steps", "T_max", "total_iters")  # what torch's schedulers call the steps that they stretch over
# A scheduler class with all of its arguments but the optimizer. The second form is what a class matches that leaves a
# required argument out: CosineAnnealingLR without T_max.
Recipe = Callable[[Optimizer], LRScheduler] | Callable[[Optimizer, int], LRScheduler]


@dataclass
class Schedule:
    """When and how the learning rate changes.

    A scheduler's length is taken from the run when it is left out: ``T_max`` of ``CosineAnnealingLR``, ``total_steps``
    of ``OneCycleLR``, and any parameter of these names in a scheduler of your own. The peak of ``OneCycleLR``, its
    ``max_lr``, is the optimizer's learning rate when it is left out.

    Args:
        scheduler: Any class of torch.optim.lr_scheduler, or your own, without its optimizer.
        interval: Step the scheduler after every optimizer step or after every epoch.
        frequency: Step it only every so many optimizer steps or epochs. With ReduceLROnPlateau and ``interval: step``,
            every so many batches of an epoch.
        monitor: Logged metric that ReduceLROnPlateau watches, such as val/loss.
    """

    scheduler: Recipe
    interval: Literal["step", "epoch"] = "epoch"
    frequency: PositiveInt = 1
    monitor: str | None = None

    def __post_init__(self) -> None:
        self.scheduler = plain_recipe(self.scheduler)

    def configure(
        self, optimizer: Optimizer, steps: float, epochs: int | None, model: nn.Module | None = None
    ) -> dict[str, Any]:
        """Build the scheduler.

        Args:
            optimizer: The optimizer whose learning rate it drives.
            steps: Optimizer steps in the whole run, infinite if unknown.
            epochs: Epochs in the whole run, None or -1 if unknown.
            model: The model that logs what ReduceLROnPlateau monitors.

        Returns:
            What ``LightningModule.configure_optimizers`` returns as ``lr_scheduler``.

        Raises:
            UserError: If an argument is missing, wrong, or would have to come from a run without a known length; or if
                the schedule ends before the run does.
        """
        length = steps if self.interval == "step" else epochs
        total = None
        if length is not None and 0 <= length < math.inf:
            total = max(1, int(length) // self.frequency)
        with building(KEY):
            scheduler = build_scheduler(self.scheduler, optimizer, total)

        is_plateau = isinstance(scheduler, ReduceLROnPlateau)
        if is_plateau:
            if self.monitor is None:
                raise UserError(
                    "model.schedule.monitor: it is not set; name the metric for ReduceLROnPlateau, such as val/loss"
                )
            choose_mode(f"{KEY}.mode", scheduler.mode, self.monitor, model)
        elif total is not None:
            check_length(scheduler, total)

        # Lightning counts the batches of an epoch; `ExperimentModule.lr_scheduler_step` counts optimizer steps.
        frequency = 1 if self.interval == "step" and not is_plateau else self.frequency
        return {
            "scheduler": scheduler, "interval": self.interval, "frequency": frequency, "monitor": self.monitor
        }  # fmt: skip


class Sequence(SequentialLR):
    """One scheduler after the other: torch's SequentialLR, with parts that YAML can describe.

    Each part starts from the optimizer's own rates. A length that is left out, such as ``T_max``, is that of the part.

    Args:
        optimizer: Its learning rates are driven.
        schedulers: The parts, classes of torch.optim.lr_scheduler that change the optimizer's own rates: not
            ReduceLROnPlateau, OneCycleLR, CyclicLR or another sequence.
        milestones: Where each part but the first begins: shares of the length if below 1, numbers of steps if not.
        total_steps: Length. Taken from the run when left out of the YAML.

    Raises:
        ValueError: If the milestones don't rise, or are not one fewer than the parts.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[Recipe],
        milestones: list[PositiveFloat],
        total_steps: PositiveInt | None = None,
    ) -> None:
        if total_steps is None:
            raise ValueError("total_steps is not set; give the number of steps that the schedule has")
        starts = [round(total_steps * place) if place < 1 else int(place) for place in milestones]
        places = [0, *starts, total_steps]
        if places != sorted(places):
            raise ValueError(
                f"milestones: {milestones} are steps {starts} of {total_steps}; let them rise up to the length"
            )
        lengths = [max(1, end - start) for start, end in pairwise(places)]
        parts = [build_scheduler(part, optimizer, length) for part, length in zip(schedulers, lengths, strict=False)]
        super().__init__(optimizer, parts, starts)
        self.total_steps = total_steps


def missing_length(recipe: Recipe) -> str | None:
    """Return the name of a scheduler's length if it is left out, to be taken from the run; None if it is not."""
    values = arguments_of(recipe)
    if values.get("steps_per_epoch") is not None:  # OneCycleLR's other way of saying how long it is
        return None
    return next((name for name in LENGTHS if values.get(name, 0) in (None, inspect.Parameter.empty)), None)


def build_scheduler(recipe: Recipe, optimizer: Optimizer, length: int | None) -> LRScheduler:
    """Build a scheduler.

    The rates that OneCycleLR and CyclicLR set for all groups alike are scaled for each one; a ``max_lr`` that is left
    out is the optimizer's own rate of each.

    Args:
        recipe: The scheduler.
        optimizer: The optimizer whose rates it drives.
        length: The steps that it stretches over, if they are left out; None if the run has no end.

    Raises:
        UserError: If another argument is missing that has no default, or the length is.
    """
    values, name = arguments_of(recipe), missing_length(recipe)
    arguments: dict[str, Any] = {}
    if name is not None:
        if length is None:
            raise UserError(
                f"{KEY}: {name} can't be taken from a run without an end; set it, or trainer.max_epochs or "
                "trainer.max_steps"
            )
        arguments[name] = length
    for name in ("max_lr", "base_lr"):
        if isinstance(rate := values.get(name), int | float):
            arguments[name] = [rate * group.get("lr_scale", 1.0) for group in optimizer.param_groups]
    if values.get("max_lr") is inspect.Parameter.empty:
        arguments["max_lr"] = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]
    for name, value in values.items():
        if value is inspect.Parameter.empty and name not in arguments:
            raise UserError(f"{KEY}: '{name}' is not set; it is required")
    # Keywords given here replace the None that stands for them in what the command line built.
    return recipe(optimizer, **arguments)  # pyright: ignore[reportCallIssue]


def check_length(scheduler: Any, steps: int) -> None:
    """Refuse a schedule that ends before the run does: torch would refuse a step, or train on at a rate of 0."""
    end = scheduler.total_iters if isinstance(scheduler, PolynomialLR) else getattr(scheduler, "total_steps", steps)
    if end < steps and not getattr(scheduler, "final", 0):
        raise UserError(
            f"{KEY}: {type(scheduler).__name__} ends after {end} steps, and this run steps it {steps} times; set its "
            "length to null to take the run's"
        )
