"""Samplers and pruners by the names that sweep files give them."""

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, CmaEsSampler, NSGAIISampler, RandomSampler, TPESampler

from litlab.errors import UserError
from litlab.util.text import nearest

SAMPLERS = {
    "tpe": TPESampler,
    "random": RandomSampler,
    "grid": RandomSampler,  # it is not asked: the points are queued
    "cmaes": CmaEsSampler,
    "nsga2": NSGAIISampler,
}
PRUNERS = {"median": MedianPruner, "hyperband": HyperbandPruner, "none": NopPruner}


def make_sampler(settings: dict[str, Any], trial: int = 0) -> BaseSampler:
    """Return the sampler of a sweep.

    Args:
        settings: Its ``name`` and arguments.
        trial: Number of the trial that it is for; it is added to the seed, if the sweep has one.

    Raises:
        UserError: If it has no such arguments.
    """
    if isinstance(settings.get("seed"), int):
        settings = {**settings, "seed": settings["seed"] + trial}
    if settings["name"] == "tpe":  # it is to stay away from what other workers are trying
        settings = {"constant_liar": True, **settings}
    return _build(SAMPLERS, settings, "sampler")


def make_pruner(settings: dict[str, Any]) -> BasePruner:
    """Return the pruner of a sweep, as `make_sampler` does."""
    return _build(PRUNERS, settings, "pruner")


def _build(classes: Mapping[str, type], settings: dict[str, Any], place: str) -> Any:
    cls, arguments = classes[settings["name"]], {key: value for key, value in settings.items() if key != "name"}
    known = inspect.signature(cls).parameters
    for name, value in arguments.items():
        if name not in known:
            raise UserError(f"{place}: {cls.__name__} has no '{name}'{nearest(name, tuple(known))}")
        default = known[name].default
        is_number = isinstance(value, (int, float)) and isinstance(value, bool) == isinstance(default, bool)
        if isinstance(default, (int, float)) and not is_number:
            raise UserError(f"{place}.{name}: must be like its default {str(default).lower()}, not '{value}'.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise UserError(f"{place}: {error}.") from error
