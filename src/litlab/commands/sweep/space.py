"""The space that a sweep searches: for each setting a range or choices, and the points in it."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, NoReturn

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from litlab.errors import UserError

Scalar = bool | int | float | str | None
Point = dict[str, Scalar]  # YAML path -> value; a choice that is a block goes by its name


@dataclass(frozen=True)
class Entry:
    """What is searched for one setting."""

    distribution: FloatDistribution | IntDistribution | CategoricalDistribution  # its values
    choices: dict[Scalar, Any]  # what the choices stand for in the config; {} for a range

    def corners(self) -> list[Scalar]:
        space: Any = self.distribution
        return list(self.choices) or [space.low, space.high]

    def grid(self) -> list[Scalar]:
        space: Any = self.distribution
        if self.choices:
            return list(self.choices)
        steps = round((space.high - space.low) / space.step)
        return [space.low + number * space.step for number in range(steps + 1)]

    def setting(self, value: Scalar) -> Any:
        """Return what a value stands for: 0.15, where steps add up to 0.15000000000000002."""
        if self.choices:
            return self.choices[value]
        return float(f"{value:.12g}") if isinstance(value, float) else value


Space = dict[str, Entry]


def list_points(space: Space, list_values: Callable[[Entry], list[Scalar]]) -> list[Point]:
    return [
        dict(zip(space, values, strict=True))
        for values in product(*map(list_values, space.values()))
    ]


def list_corners(space: Space) -> list[Point]:
    """Return points that hold both ends of each range and every choice, with the blocks that they
    lie in.
    """
    corners: list[Point] = []
    for path in space:
        around = {
            other: entry for other, entry in space.items() if f"{path}.".startswith(f"{other}.")
        }
        corners += list_points(around, Entry.corners)
    return corners


def make_overlay(space: Space, point: Point) -> dict[str, Any]:
    """Return the config overlay of a point: YAML path -> setting.

    A value inside of a block that another entry has chosen is put into the block.
    """
    settings: dict[str, Any] = {}
    for path in sorted(space.keys() & point.keys(), key=lambda path: path.count(".")):
        setting = space[path].setting(point[path])
        block = next((other for other in settings if path.startswith(f"{other}.")), None)
        if block is None:
            settings[path] = setting
        else:
            keys = path.removeprefix(f"{block}.").split(".")
            settings[block] = _put(settings[block], keys, setting)
    return settings


def _put(block: Any, keys: list[str], setting: Any) -> Any:
    """Return a block with a setting in it; paths leave ``init_args`` out, which a config needs."""
    if not keys:
        return setting
    if isinstance(block, str):  # a class by its name alone
        block = {"class_path": block}
    block = dict(block or {})
    if "class_path" in block and keys[0] not in ("class_path", "init_args"):
        keys = ["init_args", *keys]
    return {**block, keys[0]: _put(block.get(keys[0]), keys[1:], setting)}


def read_space(content: Any) -> Space:
    if not isinstance(content, dict) or not content:
        refuse(
            "space", "it is missing; list flags, such as model.width, each with a range or choices"
        )
    space: Space = {}
    for path, entry in content.items():
        key = f"space.{path}"
        keys = entry.keys() if isinstance(entry, dict) else set()
        if keys != {"choices"} and keys - {"step", "log"} != {"low", "high"}:
            refuse(key, "give low and high (and step or log), or choices")
        choices = _read_choices(entry["choices"], key) if "choices" in entry else {}
        distribution = (
            CategoricalDistribution(list(choices)) if choices else _read_range(entry, key)
        )
        space[path] = Entry(distribution, choices)
    return space


def _read_range(entry: dict[str, Any], key: str) -> FloatDistribution | IntDistribution:
    try:
        # Such as of steps that do not end at high
        with warnings.catch_warnings(action="error", category=UserWarning):
            is_whole = all(
                isinstance(number, int) for name, number in entry.items() if name != "log"
            )
            return (IntDistribution if is_whole else FloatDistribution)(**entry)
    except (TypeError, ValueError, UserWarning) as error:
        raise UserError(f"{key}: {error}") from error


def _read_choices(content: Any, key: str) -> dict[Scalar, Any]:
    if isinstance(content, dict) and content:
        return {str(name): value for name, value in content.items()}
    if not isinstance(content, list) or not content:
        refuse(key, "choices must be a list of values or blocks, or named blocks")
    choices: dict[Scalar, Any] = {}
    for value in content:
        name = value if isinstance(value, Scalar) else json.dumps(value)
        if name in choices:
            refuse(
                key,
                f"'{name}' equals an earlier choice; remove one, or name them (choices: "
                f"{{NAME: ...}})",
            )
        choices[name] = value
    return choices


def list_grid(space: Space) -> list[Any]:
    for path, entry in space.items():
        space_of: Any = entry.distribution
        if not entry.choices and (space_of.step is None or space_of.log):
            refuse(f"space.{path}", "a grid needs a step without log, or choices")
    return list_points(space, Entry.grid)


def refuse(key: str, problem: str) -> NoReturn:
    raise UserError(f"{key}: {problem}")
