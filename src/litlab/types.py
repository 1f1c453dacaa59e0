"""Numbers with bounds, as types of settings: ``batch_size: PositiveInt``.

The command line refuses what is out of bounds before anything is built; ``--help`` and an editor's JSON schema show the
bounds. What a class gets is a plain int or float, and that is what a type checker sees. Bounds of your own::

    if TYPE_CHECKING:
        Width = int
    else:
        Width = bounded(int, ">= 4")
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from jsonargparse.typing import register_type

from litlab.errors import UserError

__all__ = [
    "ClosedUnitInterval",
    "HalfOpenUnitInterval",
    "NonNegativeFloat",
    "NonNegativeInt",
    "OpenUnitInterval",
    "PositiveFloat",
    "PositiveInt",
    "Seed",
    "bounded",
    "check_bounds",
]

_COMPARISONS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    ">=": (operator.ge, "at least"),
    ">": (operator.gt, "above"),
    "<=": (operator.le, "at most"),
    "<": (operator.lt, "below"),
}


class Bounds:
    """A range of numbers.

    Args:
        conditions: What all of its numbers meet, such as ``">= 0"`` and ``"< 1"``.
        also: A number outside of the range that has a meaning of its own.
    """

    def __init__(self, *conditions: str, also: int | None = None) -> None:
        pairs = [condition.split() for condition in conditions]
        self.conditions = [(sign, float(end) if "." in end else int(end)) for sign, end in pairs]
        self.also = also

    def __contains__(self, value: float) -> bool:
        """Return whether a number is in the range. NaN never is."""
        within = all(_COMPARISONS[sign][0](value, end) for sign, end in self.conditions)
        return within or (self.also is not None and value == self.also)

    def __str__(self) -> str:
        text = " and ".join(f"{_COMPARISONS[sign][1]} {end}" for sign, end in self.conditions)
        return text if self.also is None else f"{text}, or {self.also}"


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

    restrictions = [(_COMPARISONS[sign][0], end) for sign, end in bounds.conditions]
    # jsonargparse takes the bounds of its JSON schema from _restrictions.
    made = type(
        f"{base.__name__} {' and '.join(conditions)}", (base,), {"bounds": bounds, "_restrictions": restrictions}
    )
    register_type(made, serializer=base, deserializer=parse, type_check=lambda value, _: False)  # checked every time
    return made


def bounds_of(hint: Any) -> Bounds | None:
    """Return the bounds of a type that `bounded` has made; None for any other."""
    return getattr(hint, "bounds", None) if isinstance(hint, type) and issubclass(hint, int | float) else None


def base_of(hint: Any) -> Any:
    """Return int or float for a type that `bounded` has made, and any other type as it is."""
    return hint.__base__ if bounds_of(hint) is not None else hint


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
        bounds = list(_bounds_in(hints.get(name)))
        numbers = value if isinstance(value, list | tuple) else [value]
        if bounds and any(is_number(number) and not any(number in one for one in bounds) for number in numbers):
            raise UserError(f"{section}.{name}: {value} is not valid; it must be {bounds[0]}")


def is_number(value: Any) -> bool:
    """Return whether a value is an int or float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bounds_in(hint: Any) -> Iterator[Bounds]:
    """Yield the bounds of a type and of its parts, such as those of a union or list."""
    if (found := bounds_of(hint)) is not None:
        yield found
    for part in get_args(hint):
        yield from _bounds_in(part)


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
