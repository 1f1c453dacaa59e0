"""What a sweep searches: entries (ranges, choices, conditions), their values, and the overlay these make."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

Scalar = bool | int | float | str | None
Values = dict[str, Scalar]  # of one trial: YAML path -> value; a choice that is a block goes by its name


@dataclass(frozen=True)
class Entry:
    """What is searched for one setting.

    Args:
        distribution: The values: numbers between two bounds, both included, or choices.
        choices: What the choices stand for in the config: a number, a word, or a whole block; {} for numbers.
        when: For which values of other entries this one is searched, YAML path -> values.
    """

    distribution: FloatDistribution | IntDistribution | CategoricalDistribution
    choices: dict[Scalar, Any] = field(default_factory=dict)
    when: dict[str, list[Scalar]] = field(default_factory=dict)

    def suggest(self, trial: Trial, path: str) -> Scalar:
        """Ask the sampler for a value."""
        space = self.distribution
        if isinstance(space, CategoricalDistribution):
            return trial.suggest_categorical(path, space.choices)
        if isinstance(space, IntDistribution):
            return trial.suggest_int(path, space.low, space.high, step=space.step, log=space.log)
        return trial.suggest_float(path, space.low, space.high, step=space.step, log=space.log)

    def corners(self) -> list[Scalar]:
        """Return the values to check: the least and the greatest, or all choices."""
        space = self.distribution
        if isinstance(space, CategoricalDistribution):
            return list(space.choices)
        return [*sorted({space.low, space.high})]

    def grid(self) -> list[Scalar]:
        """Return all values; numbers must have a step."""
        space = self.distribution
        if isinstance(space, CategoricalDistribution):
            return list(space.choices)
        step = space.step or 1
        return [space.low + number * step for number in range(round((space.high - space.low) / step) + 1)]

    def setting(self, value: Scalar) -> Any:
        """Return what a value stands for in the config: 0.15, where steps add up to 0.15000000000000002."""
        if self.choices:
            return self.choices[value]
        return float(f"{value:.12g}") if isinstance(value, float) else value


Space = dict[str, Entry]


def suggest(space: Space, trial: Trial) -> Values:
    """Ask the sampler for the values of a trial, entry by entry; entries come after those they depend on."""
    values: Values = {}
    for path, entry in space.items():
        if _is_asked(entry, values):
            values[path] = entry.suggest(trial, path)
    return values


def grid(space: Space) -> Iterator[Values]:
    """Yield all points of a space whose ranges have steps."""
    return _points(space, lambda entry: entry.grid())


def corner_points(space: Space) -> list[Values]:
    """Return few points that together hold every corner of every range and every choice.

    An entry is tried with all choices that it depends on, or whose block it lies in; what is independent is tried
    together.
    """
    points: list[Values] = []
    for path in space:
        related = _related(space, path)
        around = {name: entry for name, entry in space.items() if name in related}
        for values in _points(around, lambda entry: entry.corners()):
            if path in values:
                _merge(points, values)
    return points


def overlay(space: Space, values: Values) -> dict[str, Any]:
    """Return the config overlay of a trial: YAML path -> setting.

    A value inside of a block that another entry chose is put into the block.
    """
    settings: dict[str, Any] = {}
    for path in sorted(values, key=lambda path: path.count(".")):
        setting = space[path].setting(values[path])
        block = next((other for other in settings if path.startswith(f"{other}.")), None)
        if block is None:
            settings[path] = setting
        else:
            settings[block] = _put(settings[block], path.removeprefix(f"{block}.").split("."), setting)
    return settings


def _put(block: Any, keys: list[str], setting: Any) -> Any:
    """Return a block with a setting in it; the flags' paths leave ``init_args`` out, which a config needs."""
    if not keys:
        return setting
    if isinstance(block, str):  # a class by its name alone
        block = {"class_path": block}
    block = dict(block or {})
    if "class_path" in block and keys[0] not in ("class_path", "init_args"):
        keys = ["init_args", *keys]
    return {**block, keys[0]: _put(block.get(keys[0]), keys[1:], setting)}


def _is_asked(entry: Entry, values: Values) -> bool:
    return all(path in values and values[path] in allowed for path, allowed in entry.when.items())


def _points(space: Space, candidates: Callable[[Entry], list[Scalar]]) -> Iterator[Values]:
    points: list[Values] = [{}]
    for path, entry in space.items():
        points = [
            {**point, **more}
            for point in points
            for more in ([{path: value} for value in candidates(entry)] if _is_asked(entry, point) else [{}])
        ]
    yield from points


def _related(space: Space, path: str) -> set[str]:
    """Return an entry, those it depends on, and those whose block it lies in; theirs too."""
    related = {path}
    for other in space:
        if other in space[path].when or path.startswith(f"{other}."):
            related |= _related(space, other)
    return related


def _merge(points: list[Values], values: Values) -> None:
    """Add values to the first point that sets none of them otherwise."""
    for point in points:
        if all(point.get(path, value) == value for path, value in values.items()):
            point.update(values)
            return
    points.append(dict(values))
