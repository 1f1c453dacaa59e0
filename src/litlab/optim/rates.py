"""The learning rates of an optimizer: read from its settings, scaled together, set in its groups."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from litlab.errors import UserError
from litlab.optim.recipe import arguments_of


def learning_rate(recipe: Callable[..., Any]) -> float | None:
    """Return the setting ``lr`` of an optimizer that is still to be built; None where it has none.

    Args:
        recipe: An optimizer's class, or a partial of it.
    """
    return _rates(recipe).get("lr")


def with_learning_rate(recipe: Callable[..., Any], lr: float) -> Callable[..., Any]:
    """Return the recipe with another ``lr``, and all its other rates (``rest_lr`` and the like) in proportion.

    Raises:
        UserError: If there is no ``lr`` above 0 to begin with.
    """
    before = learning_rate(recipe)
    if not before:
        raise UserError("model.optimizer: it has no lr above 0; set one, or choose another optimizer")
    scaled = {name: rate * (lr / before) for name, rate in _rates(recipe).items()}
    return partial(recipe, **{**scaled, "lr": lr})  # exactly


def rate_settings(recipe: Callable[..., Any]) -> dict[str, Any]:
    """Return all learning rates of a recipe as YAML has them: ``{class_path: ..., init_args: {lr: 0.1}}``."""
    cls: Any = recipe.func if isinstance(recipe, partial) else recipe
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": _rates(recipe)}


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group of an optimizer's parameters, in place where it is a tensor."""
    if isinstance(group["lr"], torch.Tensor):  # optimizers with a compiled step insist on theirs
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _rates(recipe: Callable[..., Any]) -> dict[str, float]:
    """Return the numbers called ``lr`` or ``..._lr``."""
    arguments = arguments_of(recipe).items()
    return {name: value for name, value in arguments if f"_{name}".endswith("_lr") and isinstance(value, int | float)}
