"""Optimizers and schedulers from the command line: a form that can be copied, and what completes a scheduler."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.errors import UserError

# A scheduler class with all of its arguments but the optimizer. The second form is what a class matches that leaves a
# required argument out: CosineAnnealingLR without T_max.
Recipe = Callable[[Optimizer], LRScheduler] | Callable[[Optimizer, int], LRScheduler]

ABSOLUTE_RATES = ("max_lr", "base_lr")  # of OneCycleLR and CyclicLR
# What torch's schedulers call the number of steps that they stretch over.
LENGTH_NAMES = ("total_steps", "T_max", "total_iters")


def plain_recipe(value: Any) -> Any:
    """Turn what the command line makes of a class and its arguments into a plain ``functools.partial`` of that class.

    The command line builds a partial that calls the class through its parser. The parser holds the whole command line
    with its files and locks, so a module that keeps such a partial can be neither copied nor pickled.

    Args:
        value: Any value. A dataclass such as `Schedule` is searched too.

    Returns:
        The same value with every such partial replaced.
    """
    if isinstance(value, partial):
        place = next((number for number, part in enumerate(value.args) if isinstance(part, type)), None)
        keywords = {name: plain_recipe(part) for name, part in value.keywords.items()}
        if place is None:
            return partial(value.func, *value.args, **keywords)
        return partial(value.args[place], *value.args[place + 1 :], **keywords)
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        parts = {name: plain_recipe(part) for name, part in found.items()}
        return replace(value, **{name: part for name, part in parts.items() if part is not found[name]})
    return [plain_recipe(part) for part in value] if isinstance(value, list) else value


def missing_length(recipe: Recipe, key: str) -> str | None:
    """Return the name of a scheduler's length if it is left out, to be taken from the run; None if it is not.

    Args:
        recipe: The scheduler.
        key: Where it is in the config, for messages.

    Raises:
        UserError: If another argument is missing that has no default.
    """
    values = _arguments(recipe)
    empty = [name for name, value in values.items() if value is inspect.Parameter.empty]
    if unknown := [name for name in empty if name not in (*LENGTH_NAMES, "max_lr")]:
        raise UserError(f"{key}: '{unknown[0]}' is not set; it is required")
    if values.get("epochs") is not None and values.get("steps_per_epoch") is not None:
        return None  # OneCycleLR's other way of saying how long it is
    return next((name for name in LENGTH_NAMES if name in values and (name in empty or values[name] is None)), None)


def build_scheduler(recipe: Recipe, optimizer: Optimizer, length: int | None, key: str) -> LRScheduler:
    """Build a scheduler.

    The rates that OneCycleLR and CyclicLR set for all groups alike are scaled for each one; a ``max_lr`` that is left
    out is the optimizer's own rate of each.

    Args:
        recipe: The scheduler.
        optimizer: The optimizer whose rates it drives.
        length: The steps that it stretches over, if they are left out.
        key: Where it is in the config, for messages.
    """
    given, arguments = _arguments(recipe), {}
    if (name := missing_length(recipe, key)) is not None:
        arguments[name] = length
    scales = [group.get("lr_scale", 1.0) for group in optimizer.param_groups]
    for name in ABSOLUTE_RATES:
        if isinstance(rate := given.get(name), int | float) and set(scales) != {1.0}:
            arguments[name] = [rate * scale for scale in scales]
    if given.get("max_lr", 0) is inspect.Parameter.empty:
        arguments["max_lr"] = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]
    # Keywords given here replace the None that stands for them in what the command line built.
    return recipe(optimizer, **arguments)  # pyright: ignore[reportCallIssue]


def _arguments(recipe: Recipe) -> dict[str, Any]:
    """Return a scheduler's arguments after the optimizer, ``inspect.Parameter.empty`` where one is missing."""
    given = dict(getattr(recipe, "keywords", {}))
    scheduler_class = next((a for a in getattr(recipe, "args", ()) if isinstance(a, type)), recipe)
    parameters = list(inspect.signature(scheduler_class).parameters.values())
    if scheduler_class is not recipe or parameters[0].name == "optimizer":
        parameters = parameters[1:]  # the optimizer is passed when the schedule is built
    return {p.name: given.get(p.name, p.default) for p in parameters}
