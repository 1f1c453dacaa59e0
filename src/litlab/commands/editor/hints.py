"""What settings take: the types that a parser has for them."""

import contextlib
import enum
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentError, ArgumentParser

PLAIN = (int, float, bool, str, bytes, complex, enum.Enum, PurePath, timedelta)


def types_of(parser: ArgumentParser) -> dict[str, Any]:
    """Return the types of a parser's settings by key."""
    found = {
        action.dest: getattr(action, "_typehint", bool if action.nargs == 0 else str)
        for action in parser._actions
        if action.dest not in ("help", "print_config") and not action.dest.endswith(".help")
    }
    groups = {name for name in found if any(other.startswith(f"{name}.") for other in found)}
    return {name: hint for name, hint in found.items() if name not in groups}


@functools.cache
def parameters(target: Callable[..., Any], positional: int = 0) -> tuple[dict[str, Any], set[str]]:
    """Return what a class or function takes: types by name, and the names that have no default.

    Args:
        target: The class or function.
        positional: How many of its first parameters a config does not set, as they are filled in later.
    """
    parser = ArgumentParser(exit_on_error=False)
    add: Any = parser.add_class_arguments if inspect.isclass(target) else parser.add_function_arguments
    add(target, fail_untyped=False, skip={positional} if positional else None)
    return types_of(parser), {action.dest for action in parser._actions if action.required}


def options(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def takes_null(hint: Any) -> bool:
    """Return whether null is a value of a type."""
    return any(one in (type(None), Any, object) or "Unvalidated" in repr(one) for one in options(hint))


def made_by(hint: Any) -> tuple[type | None, int]:
    """Return the class that a ``Callable[[...], Class]`` makes, and how many arguments it is called with."""
    *called_with, made = get_args(hint) or (None,)
    if get_origin(hint) is not Callable or not inspect.isclass(made) or made.__module__ == "builtins":
        return None, 0
    return made, len(called_with[0]) if isinstance(called_with[0], list) else 0


def kind(hint: Any) -> Literal["plain", "list", "mapping", "class"]:
    """Return how values of a type are written in YAML."""
    origin = get_origin(hint) or hint
    if made_by(hint)[0] is not None:
        return "class"
    if not inspect.isclass(origin) or issubclass(origin, PLAIN) or origin is type:
        return "plain"
    if issubclass(origin, Mapping):
        return "mapping"
    if origin.__module__ in ("builtins", "collections", "collections.abc") and issubclass(origin, Iterable):
        return "list"
    return "class" if origin.__module__ not in ("builtins", "collections.abc") else "plain"


def accepts(hint: Any, value: Any) -> bool:
    """Return whether the parser takes a value for a type."""
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=hint)
    except ValueError:  # a type that jsonargparse does not know, and so does not check
        return True
    with contextlib.suppress(ArgumentError, TypeError, ValueError):
        parser.parse_object({"value": value})
        return True
    return False
