"""The learning rates of an optimizer: read from its settings, scaled together, set in its groups."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from litlab.errors import UserError


def learning_rate(recipe: Callable[..., Any]) -> float | None:
    """Return the setting ``lr`` of an optimizer that is still to be built; None where it has none.

    Args:
        recipe: An optimizer's class, or a partial of it.
    """
    value = _rates(recipe).get("lr")
    return None if value is None else float(value)


def with_learning_rate(recipe: Callable[..., Any], lr: float) -> Callable[..., Any]:
    """Return the recipe with another ``lr``, and all its other rates (``matrix_lr`` and the like) in proportion.

    Args:
        recipe: As of `learning_rate`. Optimizers among its arguments are scaled with it.
        lr: The new value.

    Raises:
        UserError: If there is no ``lr`` above 0 to begin with.
    """
    now = learning_rate(recipe)
    if not now:
        what = "has no setting lr" if now is None else "has an lr of 0"
        raise UserError(f"model.optimizer: {_class(recipe).__name__} {what}; choose another optimizer or set lr")
    scaled = _scaled(recipe, lr / now)
    return partial(scaled.func, *scaled.args, **{**scaled.keywords, "lr": lr})  # exactly


def rate_settings(recipe: Callable[..., Any]) -> dict[str, Any]:
    """Return all learning rates of a recipe as YAML has them: ``{class_path: ..., init_args: {lr: 0.1}}``."""
    parts = {name: rate_settings(part) for name, part in getattr(recipe, "keywords", {}).items() if _rates(part)}
    cls = _class(recipe)
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": {**_rates(recipe), **parts}}


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group of an optimizer's parameters, in place where it is a tensor.

    Args:
        group: One of ``optimizer.param_groups``.
        rate: The learning rate.
    """
    if isinstance(group["lr"], torch.Tensor):  # optimizers with a compiled step insist on theirs
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _class(recipe: Callable[..., Any]) -> Any:
    return recipe.func if isinstance(recipe, partial) else recipe


def _rates(recipe: Any) -> dict[str, float]:
    """Return the numbers called ``lr`` or ``..._lr``, given or by default; none where it is no recipe."""
    if not callable(recipe):
        return {}
    parameters = inspect.signature(_class(recipe)).parameters.values()
    values = {p.name: p.default for p in parameters} | getattr(recipe, "keywords", {})
    return {
        name: value
        for name, value in values.items()
        if (name == "lr" or name.endswith("_lr")) and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _scaled(recipe: Any, factor: float) -> partial:
    rates = {name: value * factor for name, value in _rates(recipe).items()}
    given = dict(getattr(recipe, "keywords", {}))
    parts = {name: _scaled(part, factor) for name, part in given.items() if isinstance(part, partial) and _rates(part)}
    return partial(_class(recipe), *getattr(recipe, "args", ()), **{**given, **rates, **parts})
