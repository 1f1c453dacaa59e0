"""What a sweep searches: ranges, choices and conditions, and the overlay that their values make."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

Scalar = bool | int | float | str | None
Point = dict[str, Scalar]  # YAML path -> value; a choice that is a block goes by its name


@dataclass(frozen=True)
class Entry:
    """What is searched for one setting.

    Args:
        distribution: Its values.
        choices: What the choices stand for in the config; {} for a range.
        when: The choices of earlier entries for which this one is searched, YAML path -> choices.
    """

    distribution: FloatDistribution | IntDistribution | CategoricalDistribution
    choices: dict[Scalar, Any]
    when: dict[str, list[Scalar]]

    def is_searched(self, point: Point) -> bool:
        return all(path in point and point[path] in allowed for path, allowed in self.when.items())

    def suggest(self, trial: Trial, path: str) -> Scalar:
        space = self.distribution
        if isinstance(space, CategoricalDistribution):
            return trial.suggest_categorical(path, space.choices)
        if isinstance(space, IntDistribution):
            return trial.suggest_int(path, space.low, space.high, step=space.step, log=space.log)
        return trial.suggest_float(path, space.low, space.high, step=space.step, log=space.log)

    def corners(self) -> list[Scalar]:
        """Return all choices, or the ends of the range."""
        space = self.distribution
        return list(self.choices) if self.choices else [space.low, space.high]  # pyright: ignore[reportAttributeAccessIssue]

    def grid(self) -> list[Scalar]:
        """Return all choices, or all values of a range with steps."""
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


def suggest_point(space: Space, trial: Trial) -> Point:
    """Ask the sampler for the values of a trial."""
    point: Point = {}
    for path, entry in space.items():
        if entry.is_searched(point):
            point[path] = entry.suggest(trial, path)
    return point


def list_points(space: Space, list_values: Callable[[Entry], list[Scalar]]) -> list[Point]:
    """Return every combination of some values of each entry.

    Args:
        space: The entries.
        list_values: Returns those values of an entry.
    """
    points: list[Point] = [{}]
    for path, entry in space.items():
        extended: list[Point] = []
        for point in points:
            if entry.is_searched(point):
                extended.extend({**point, path: value} for value in list_values(entry))
            else:
                extended.append(point)
        points = extended
    return points


def list_corners(space: Space) -> list[Point]:
    """Return points that hold both ends of each range and every choice, with those that they depend on."""
    corners: list[Point] = []
    for path in space:
        related = _find_related(space, path)
        around = {name: entry for name, entry in space.items() if name in related}
        corners += [point for point in list_points(around, Entry.corners) if path in point]
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


def _find_related(space: Space, path: str) -> set[str]:
    """Return an entry, those it depends on, and those whose block it lies in; theirs too."""
    related = {path}
    for other in space:
        if other in space[path].when or path.startswith(f"{other}."):
            related |= _find_related(space, other)
    return related
