"""Optimizers and schedules that YAML describes: a class and its arguments, which the run
completes.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, ReduceLROnPlateau

from litlab.errors import UserError, building
from litlab.types import ClosedUnitInterval, HalfOpenUnitInterval, PositiveInt
from litlab.util.metrics import choose_mode
from litlab.util.recipes import plain_recipe


def arguments_of(recipe: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of a recipe by name, given or by default; ``inspect.Parameter.empty``
    where one is missing.

    Args:
        recipe: A class, or a plain partial of it. Its first argument, what it will work on, is left
            out.
    """
    _, *parameters = inspect.signature(getattr(recipe, "func", recipe)).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters} | getattr(
        recipe, "keywords", {}
    )


def rates_of(recipe: Callable[..., Any]) -> dict[str, float]:
    """Return the learning rates of an optimizer's recipe: its numbers called ``lr`` or
    ``..._lr``.
    """
    arguments = arguments_of(recipe).items()
    return {
        name: value
        for name, value in arguments
        if f"_{name}".endswith("_lr") and isinstance(value, int | float)
    }


def scale_rates(recipe: Callable[..., Any], lr: float) -> Callable[..., Any]:
    """Return an optimizer's recipe with another ``lr``, and its other learning rates in
    proportion.
    """
    rates = rates_of(recipe)
    scaled = {name: rate * (lr / rates["lr"]) for name, rate in rates.items()}
    return partial(recipe, **{**scaled, "lr": lr})  # exactly


KEY = "model.schedule.scheduler"
# What torch's schedulers call the steps that they stretch over
LENGTHS = ("total_steps", "T_max", "total_iters")
# A scheduler class with all of its arguments but the optimizer. The second form is what a class
# matches that leaves a required argument out: CosineAnnealingLR without T_max.
Recipe = Callable[[Optimizer], LRScheduler] | Callable[[Optimizer, int], LRScheduler]


@dataclass
class Schedule:
    """When and how the learning rate changes.

    If you leave out a scheduler's length, it is taken from the run: ``T_max`` of
    ``CosineAnnealingLR``, ``total_steps`` of ``OneCycleLR``, and parameters of these names in your
    own schedulers. If you leave out ``max_lr``, the peak of ``OneCycleLR``, it is the optimizer's
    learning rate.

    Args:
        scheduler: Any class of torch.optim.lr_scheduler, or your own, without its optimizer.
        interval: Step the scheduler after every optimizer step or after every epoch.
        frequency: Step it only every so many optimizer steps of the run, or epochs.
        monitor: Logged metric that ReduceLROnPlateau watches, such as val/loss.
    """

    scheduler: Recipe
    interval: Literal["step", "epoch"] = "epoch"
    frequency: PositiveInt = 1
    monitor: str | None = None

    def __post_init__(self) -> None:
        self.scheduler = plain_recipe(self.scheduler)

    def configure(
        self, optimizer: Optimizer, length: float, model: nn.Module | None = None
    ) -> dict[str, Any]:
        """Build the scheduler.

        The rates that OneCycleLR and CyclicLR set for all groups alike are scaled for each one; a
        ``max_lr`` that is left out is the optimizer's own rate of each.

        Args:
            optimizer: The optimizer whose learning rate it drives.
            length: Optimizer steps of the whole run, or with the interval `epoch` its epochs; inf
                if it is not known.
            model: The model that logs what ReduceLROnPlateau monitors.

        Returns:
            What ``LightningModule.configure_optimizers`` returns as ``lr_scheduler``.

        Raises:
            UserError: If the scheduler has no length, or one that the run exceeds; if
                ReduceLROnPlateau waits for the wrong direction of a metric.
        """
        # What the run and the optimizer say
        arguments: dict[str, Any] = {}
        name = missing_length(self.scheduler)
        values, groups = arguments_of(self.scheduler), optimizer.param_groups
        if name is not None and length < math.inf:
            arguments[name] = max(1, math.ceil(length) // self.frequency)
        elif name is not None and values[name] is inspect.Parameter.empty:
            raise UserError(
                f"{KEY}: {name} is not set, and the length of the run is not known; set it, or "
                f"trainer.max_{self.interval}s"
            )
        for name in ("max_lr", "base_lr"):
            rate = values.get(name)
            if isinstance(rate, int | float):
                arguments[name] = [rate * group.get("lr_scale", 1.0) for group in groups]
        if values.get("max_lr") is inspect.Parameter.empty:
            arguments["max_lr"] = [group["lr"] for group in groups]

        # Keywords given here replace the None that stands for them in what the command line built.
        with building(KEY):
            scheduler = self.scheduler(optimizer, **arguments)  # pyright: ignore[reportCallIssue]
        if isinstance(scheduler, ReduceLROnPlateau) and self.monitor:
            choose_mode(f"{KEY}.mode", scheduler.mode, self.monitor, model)
        if isinstance(scheduler, OneCycleLR) and scheduler.total_steps < length // self.frequency:
            raise UserError(
                f"{KEY}: OneCycleLR ends after {scheduler.total_steps} steps, but the run has "
                f"{length // self.frequency:.0f}; leave its length out, or set it to that"
            )
        return {
            "scheduler": scheduler,
            "interval": self.interval,
            # Steps are counted by the module
            "frequency": 1 if self.interval == "step" else self.frequency,
            "monitor": self.monitor,
        }


def missing_length(recipe: Recipe) -> str | None:
    """Return the name of a scheduler's length if it is left out, to be taken from the run; None if
    it is not.
    """
    values = arguments_of(recipe)
    if values.get("steps_per_epoch") is not None:  # OneCycleLR's other way of saying how long it is
        return None
    return next(
        (name for name in LENGTHS if values.get(name, 0) in (None, inspect.Parameter.empty)), None
    )


class WarmupDecay(LRScheduler):
    """Linear warm-up, then linear or cosine decay, as a factor on every parameter group's own
    learning rate.

    OneCycleLR does the same but sets one peak for all groups; here each group keeps its ratio to
    the others. Step it after every optimizer step (``interval: step``).

    Args:
        optimizer: Its groups' learning rates are the peaks.
        total_steps: Length. Taken from the run when left out of the YAML.
        warmup: Share of the steps during which the rate rises, from 0 to below 1.
        final: Factor at the end.
        decay: Shape of the descent.
        last_epoch: Step to continue from, as in torch's schedulers.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: PositiveInt,
        warmup: HalfOpenUnitInterval = 0.1,
        final: ClosedUnitInterval = 0.0,
        decay: Literal["linear", "cosine"] = "linear",
        last_epoch: int = -1,
    ) -> None:
        self.warmup, self.final, self.decay, self.total_steps = warmup, final, decay, total_steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """Learning rate of each group for the step that comes next."""
        # The first step is taken at 1/(n+1) of the way, not at 0: a step with a rate of zero would
        # be wasted.
        progress = min(1.0, (self.last_epoch + 1) / (self.total_steps + 1))
        if progress < self.warmup:
            factor = progress / self.warmup
        else:
            left = (1 - progress) / (1 - self.warmup)
            if self.decay == "cosine":
                left = (1 - math.cos(math.pi * left)) / 2
            factor = self.final + (1 - self.final) * left
        return [base * factor for base in self.base_lrs]
