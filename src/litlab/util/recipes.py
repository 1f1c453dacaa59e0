"""What settings of a config become in a model: plain recipes, and facts of the data."""

from functools import cached_property, partial
from typing import Any


def plain_recipe(value: Any) -> Any:
    """Turn what the command line makes of a class and its arguments into a plain
    ``functools.partial`` of that class.

    The command line builds a partial that calls the class through its parser. The parser holds the
    whole command line with its files and locks, so a module that keeps such a partial can be
    neither copied nor pickled.

    Args:
        value: Any value; a Schedule has a plain one already.

    Returns:
        The same value with every such partial replaced.
    """
    if not isinstance(value, partial):
        return value
    cls = next((part for part in value.args if isinstance(part, type)), None)
    return (
        value
        if cls is None
        else partial(cls, **{name: plain_recipe(part) for name, part in value.keywords.items()})
    )


def is_fact(data: type, name: str) -> bool:
    """Return whether a class of DataModules says something about its data that a model may need to
    know.

    Args:
        data: The class.
        name: A name that is a setting of the model, too.

    Returns:
        True for all of its `Metadata`, for a property, and for a number or several, as in
        ``num_classes = 3``. Words are of other use.
    """
    metadata_type = getattr(data, "metadata_type", object)
    values = getattr(metadata_type, name, None), getattr(data, name, None)
    kinds = property | cached_property | int | float | list | tuple
    return name in getattr(metadata_type, "__dataclass_fields__", ()) or any(
        isinstance(value, kinds) for value in values
    )
