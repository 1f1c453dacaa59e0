"""What a sweep searches: entries (ranges, choices, conditions), their values, and the overlay these make."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna import Trial

Scalar = bool | int | float | str | None
Values = dict[str, Scalar]  # of one trial: YAML path -> value; a choice that is a block goes by its name


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; integers where both are.

    Args:
        low: The least.
        high: The greatest.
        step: Distance of two neighbours; None for any number between, which for integers is 1.
        log: Whether as many values are tried from 0.001 to 0.01 as from 0.01 to 0.1.
        when: For which values of other entries this one is asked for, YAML path -> values.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False
    when: dict[str, list[Scalar]] = field(default_factory=dict)

    @property
    def is_integer(self) -> bool:
        """Whether the values are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def suggest(self, trial: "Trial", path: str) -> Scalar:
        """Asks the sampler for a value."""
        if self.is_integer:
            return trial.suggest_int(path, int(self.low), int(self.high), step=int(self.step or 1), log=self.log)
        return trial.suggest_float(path, self.low, self.high, step=self.step, log=self.log)

    def corners(self) -> list[Scalar]:
        """The values to check: the least and the greatest."""
        return [self.low, self.high] if self.low != self.high else [self.low]

    def grid(self) -> list[Scalar]:
        """All values; there must be a step."""
        step = self.step or 1
        count = int((self.high - self.low) / step + 1e-9) + 1
        return [self.low + number * step for number in range(count)]

    def setting(self, value: Scalar) -> Any:
        """What a value stands for in the config: 0.15, where steps add up to 0.15000000000000002."""
        return float(f"{value:.12g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Choice:
    """Some values, numbers and words or whole blocks of a config.

    Args:
        choices: What the trials keep (a scalar, or the name of a block) -> what it stands for in the config.
        when: For which values of other entries this one is asked for, YAML path -> values.
    """

    choices: dict[Scalar, Any]
    when: dict[str, list[Scalar]] = field(default_factory=dict)

    def suggest(self, trial: "Trial", path: str) -> Scalar:
        """Asks the sampler for a value."""
        return trial.suggest_categorical(path, list(self.choices))

    def corners(self) -> list[Scalar]:
        """The values to check: all."""
        return list(self.choices)

    grid = corners

    def setting(self, value: Scalar) -> Any:
        """What a value stands for in the config."""
        return self.choices[value]


Entry = Range | Choice
Space = dict[str, Entry]


def suggest(space: Space, trial: "Trial") -> Values:
    """Asks the sampler for the values of a trial, entry by entry; entries come after those they depend on."""
    values: Values = {}
    for path, entry in space.items():
        if _is_asked(entry, values):
            values[path] = entry.suggest(trial, path)
    return values


def grid(space: Space) -> Iterator[Values]:
    """All points of a space whose ranges have steps."""
    return _points(space, lambda entry: entry.grid())


def corner_points(space: Space) -> list[Values]:
    """Few points that together hold every corner of every range and every choice.

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
    """The config overlay of a trial: YAML path -> setting.

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


def with_blocks(space: Space, blocks: dict[str, list[list[Any]]]) -> Space:
    """A space with other settings for some of its choices.

    Args:
        space: The space.
        blocks: YAML path -> pairs of a choice and its setting.
    """
    completed = dict(space)
    for path, pairs in blocks.items():
        entry = space[path]
        assert isinstance(entry, Choice)
        completed[path] = dataclasses.replace(entry, choices={**entry.choices, **dict(map(tuple, pairs))})
    return completed


def _put(block: Any, keys: list[str], setting: Any) -> Any:
    """A block with a setting in it; the flags' paths leave ``init_args`` out, which a config needs."""
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
        points = list(
            itertools.chain.from_iterable(
                [{**point, path: value} for value in candidates(entry)] if _is_asked(entry, point) else [point]
                for point in points
            )
        )
    yield from points


def _related(space: Space, path: str) -> set[str]:
    """An entry, those it depends on, and those whose block it lies in; theirs too."""
    related = {path}
    for other in space:
        if other in space[path].when or path.startswith(f"{other}."):
            related |= _related(space, other)
    return related


def _merge(points: list[Values], values: Values) -> None:
    """Adds values to the first point that sets none of them otherwise."""
    for point in points:
        if all(point.get(path, value) == value for path, value in values.items()):
            point.update(values)
            return
    points.append(dict(values))
