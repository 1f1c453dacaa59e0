"""Numbers with bounds, as types of settings: ``batch_size: PositiveInt``.

The command line refuses what is out of bounds before anything is built; ``--help`` and an editor's
JSON schema show the bounds. A class that is built in Python takes any number: its types are plain
int and float for it, as for a type checker. jsonargparse's own types leave instances of themselves
in the hyper-parameters, which ``torch.load(weights_only=True)`` refuses. Bounds of your own::

    if TYPE_CHECKING:
        Width = int
    else:
        Width = bounded(int, ">= 4")
"""

import operator
from ast import literal_eval
from typing import TYPE_CHECKING, Any

from jsonargparse.typing import register_type

_SIGNS = {
    ">=": (operator.ge, "at least"),
    ">": (operator.gt, "above"),
    "<=": (operator.le, "at most"),
    "<": (operator.lt, "below"),
}


def bounded(base: type, *conditions: str) -> Any:
    """Make a type of number.

    Args:
        base: ``int`` or ``float``.
        conditions: The bounds, such as ``">= 0"`` and ``"< 1"``.
    """
    pairs = [condition.split() for condition in conditions]
    restrictions = [(_SIGNS[sign][0], literal_eval(end)) for sign, end in pairs]
    limits = " and ".join(f"{_SIGNS[sign][1]} {end}" for sign, end in pairs)

    def parse(value: Any) -> Any:
        try:
            number = base(str(value))  # as text, for int(1.5) is 1
        except ValueError:
            raise ValueError(f"{value} is not valid; it must be {base.__name__}") from None
        if not all(compare(number, end) for compare, end in restrictions):
            raise ValueError(f"{value} is not valid; it must be {limits}")
        return number

    # jsonargparse takes the bounds of its JSON schema from _restrictions.
    name = f"{base.__name__} {' and '.join(conditions)}"
    kind = type(name, (base,), {"bounds": conditions, "_restrictions": restrictions})
    register_type(kind, serializer=base, deserializer=parse)
    return kind


if TYPE_CHECKING:
    PositiveInt = NonNegativeInt = Seed = int
    PositiveFloat = NonNegativeFloat = ClosedUnitInterval = OpenUnitInterval = (
        HalfOpenUnitInterval
    ) = float
else:
    PositiveInt = bounded(int, ">= 1")
    NonNegativeInt = bounded(int, ">= 0")
    Seed = bounded(int, ">= 0", f"<= {2**32 - 1}")  # what numpy takes
    PositiveFloat = bounded(float, "> 0")
    NonNegativeFloat = bounded(float, ">= 0")
    ClosedUnitInterval = bounded(float, ">= 0", "<= 1")
    OpenUnitInterval = bounded(float, "> 0", "< 1")
    HalfOpenUnitInterval = bounded(float, ">= 0", "< 1")
