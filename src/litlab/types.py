"""Numbers with bounds, as types of settings: ``batch_size: PositiveInt``.

The command line refuses what is out of bounds before anything is built; ``--help`` and an editor's JSON schema show the
bounds. What a class gets is a plain int or float, and that is what a type checker sees. jsonargparse's own types leave
instances of themselves in the hyper-parameters, which ``torch.load(weights_only=True)`` refuses. Bounds of your own::

    if TYPE_CHECKING:
        Width = int
    else:
        Width = bounded(int, ">= 4")
"""

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from jsonargparse.typing import register_type

from litlab.errors import UserError

_COMPARISONS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    ">=": (operator.ge, "at least"),
    ">": (operator.gt, "above"),
    "<=": (operator.le, "at most"),
    "<": (operator.lt, "below"),
}


class Bounds:
    """A range of numbers: what meets all of some conditions, such as ``">= 0"`` and ``"< 1"``."""

    def __init__(self, *conditions: str) -> None:
        pairs = [condition.split() for condition in conditions]
        self.conditions = [(sign, float(end) if "." in end else int(end)) for sign, end in pairs]

    def __contains__(self, value: float) -> bool:
        return all(_COMPARISONS[sign][0](value, end) for sign, end in self.conditions)

    def __str__(self) -> str:
        return " and ".join(f"{_COMPARISONS[sign][1]} {end}" for sign, end in self.conditions)


def bounded(base: type, *conditions: str) -> Any:
    """Make a type of number.

    Args:
        base: ``int`` or ``float``.
        conditions: The bounds, such as ``">= 0"`` and ``"< 1"``.
    """
    bounds = Bounds(*conditions)

    def parse(value: Any) -> Any:
        try:
            number = base(value)
        except (ValueError, TypeError):
            number = None
        if number is None or isinstance(value, bool) or (base is int and isinstance(value, float)):  # as for int itself
            raise ValueError(f"{value} is not valid; it must be {base.__name__}")
        if number not in bounds:
            raise ValueError(f"{value} is not valid; it must be {bounds}")
        return number

    # jsonargparse takes the bounds of its JSON schema from _restrictions.
    restrictions = [(_COMPARISONS[sign][0], end) for sign, end in bounds.conditions]
    name = f"{base.__name__} {' and '.join(conditions)}"
    kind = type(name, (base,), {"bounds": bounds, "_restrictions": restrictions})
    register_type(kind, serializer=base, deserializer=parse, type_check=lambda value, _: False)  # checked every time
    return kind


def find_bounds(hint: Any) -> list[Bounds]:
    """Return the bounds of a type and of its parts, such as those of a union or list."""
    bounds = [getattr(hint, "bounds", None)]
    for part in get_args(hint):
        bounds += find_bounds(part)
    return [one for one in bounds if isinstance(one, Bounds)]


def check_bounds(function: Callable[..., Any], values: Mapping[str, Any], section: str) -> None:
    """Refuse numbers that are out of bounds, for what is built in Python, where no parser has looked at them.

    Args:
        function: The function or class whose annotations say what is allowed.
        values: Its arguments by name. Names that it does not have are left alone.
        section: Key of the arguments in a config, such as ``data``.

    Raises:
        UserError: For the first number that is out of bounds.
    """
    hints = get_type_hints(function.__init__ if isinstance(function, type) else function)
    for name, value in values.items():
        bounds = find_bounds(hints.get(name))
        numbers = value if isinstance(value, list | tuple) else [value]
        known = [number for number in numbers if type(number) in (int, float)]
        if bounds and not all(any(number in one for one in bounds) for number in known):
            raise UserError(f"{section}.{name}: {value} is not valid; it must be {bounds[0]}")


if TYPE_CHECKING:
    PositiveInt = NonNegativeInt = Seed = int
    PositiveFloat = NonNegativeFloat = ClosedUnitInterval = OpenUnitInterval = HalfOpenUnitInterval = float
else:
    PositiveInt = bounded(int, ">= 1")
    NonNegativeInt = bounded(int, ">= 0")
    Seed = bounded(int, ">= 0", f"<= {2**32 - 1}")  # what numpy takes
    PositiveFloat = bounded(float, "> 0")
    NonNegativeFloat = bounded(float, ">= 0")
    ClosedUnitInterval = bounded(float, ">= 0", "<= 1")
    OpenUnitInterval = bounded(float, "> 0", "< 1")
    HalfOpenUnitInterval = bounded(float, ">= 0", "< 1")
