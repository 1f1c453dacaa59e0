"""Optimizers and schedulers that are still to be built: a class, and arguments for it."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


def plain_recipe(value: Any) -> Any:
    """Turn what the command line makes of a class and its arguments into a plain ``functools.partial`` of that class.

    The command line builds a partial that calls the class through its parser. The parser holds the whole command line
    with its files and locks, so a module that keeps such a partial can be neither copied nor pickled.

    Args:
        value: Any value; a `Schedule` has a plain one already.

    Returns:
        The same value with every such partial replaced.
    """
    if not isinstance(value, partial):
        return value
    cls = next((part for part in value.args if isinstance(part, type)), None)
    return value if cls is None else partial(cls, **{name: plain_recipe(part) for name, part in value.keywords.items()})


def arguments_of(recipe: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of a recipe by name, given or by default; ``inspect.Parameter.empty`` where one is missing.

    Args:
        recipe: A class, or a plain partial of it. Its first argument, what it will work on, is left out.
    """
    _, *parameters = inspect.signature(getattr(recipe, "func", recipe)).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters} | getattr(recipe, "keywords", {})


def rates_of(recipe: Callable[..., Any]) -> dict[str, float]:
    """Return the learning rates of an optimizer's recipe: its numbers called ``lr`` or ``..._lr``."""
    arguments = arguments_of(recipe).items()
    return {name: value for name, value in arguments if f"_{name}".endswith("_lr") and isinstance(value, int | float)}


def scale_rates(recipe: Callable[..., Any], lr: float) -> Callable[..., Any]:
    """Return an optimizer's recipe with another ``lr``, and its other learning rates in proportion."""
    rates = rates_of(recipe)
    scaled = {name: rate * (lr / rates["lr"]) for name, rate in rates.items()}
    return partial(recipe, **{**scaled, "lr": lr})  # exactly
