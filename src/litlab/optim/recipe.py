"""Optimizers and schedulers from the command line, in a form that can be copied."""

from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any


def plain_recipe(value: Any) -> Any:
    """Turn what the command line makes of a class and its arguments into a plain ``functools.partial`` of that class.

    The command line builds a partial that calls the class through its parser. The parser holds the whole command line
    with its files and locks, so a module that keeps such a partial can be neither copied nor pickled.

    Args:
        value: Any value. A dataclass such as `Schedule` is searched too.

    Returns:
        The same value with every such partial replaced.
    """
    if isinstance(value, partial):
        place = next((number for number, part in enumerate(value.args) if isinstance(part, type)), None)
        keywords = {name: plain_recipe(part) for name, part in value.keywords.items()}
        if place is None:
            return partial(value.func, *value.args, **keywords)
        return partial(value.args[place], *value.args[place + 1 :], **keywords)
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        parts = {name: plain_recipe(part) for name, part in found.items()}
        return replace(value, **{name: part for name, part in parts.items() if part is not found[name]})
    return value
