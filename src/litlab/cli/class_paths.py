"""Classes as configs name them, by full path or short name, and the types of what they take."""

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser
from jsonargparse._common import ImportDenied
from jsonargparse._util import import_object  # nothing public imports what is allowed, and only that

from litlab.cli.trust import denied
from litlab.errors import UserError, first_line
from litlab.util.nearest import nearest
from litlab.util.team import is_own


def find_class(path: str, base: type) -> Any:
    """What a class path in a config leads to.

    Args:
        path: A full path, or the name of a subclass alone.
        base: The class that is needed.

    Raises:
        UserError: If there is no such class or function.
    """
    if "." not in path:
        named = {_path(cls): cls for cls in subclasses(base) if cls.__name__ == path}
        if len(named) > 1:
            raise UserError(f"there are several classes '{path}': give the path, {' or '.join(sorted(named)[:4])}.")
        if not named:
            raise UserError(f"there is no class '{path}'{_nearest_class(path, base)}")
        return next(iter(named.values()))
    module, _, name = path.rpartition(".")
    try:
        found = import_object(path)
    except ImportDenied as error:
        refused = re.findall(r"'([^']*)'", str(error))  # the path that it really has, and the rule
        raise UserError(denied(refused[0], everything=refused[1] == "*")) from error
    except ModuleNotFoundError as error:
        raise UserError(f"'{path}': there is no module '{error.name}'.") from error
    except AttributeError as error:
        raise UserError(f"{module} has no '{name}'{nearest(name, dir(sys.modules.get(module)))}") from error
    except Exception as error:  # whatever the module raises
        raise UserError(f"'{path}' can't be imported: {first_line(error)}.") from error
    made = found if inspect.isclass(found) else _returned(found)
    if not inspect.isclass(made) or not issubclass(made, base):
        what = "is no" if inspect.isclass(found) or not callable(found) else "is not known to return any"
        raise UserError(f"'{path}' {what} {base.__name__}, which is needed here.")
    if inspect.isabstract(found):
        raise UserError(f"'{path}' is abstract: name one of its subclasses.")
    return found


def is_general(base: type) -> bool:
    """Whether a class stands for its subclasses, such as Callback, and is never meant itself."""
    return inspect.isabstract(base) or (bool(subclasses(base) - {base}) and not is_own(base.__module__))


@functools.cache
def parameters(target: Callable[..., Any], positional: int = 0) -> tuple[dict[str, Any], set[str]]:
    """What a class or function takes.

    Args:
        target: The class or function.
        positional: How many of the first ones are filled in later, and are none of a config's.

    Returns:
        Their types by name, and the names of those that must be given.
    """
    parser = ArgumentParser(exit_on_error=False)
    skip: set[str | int] | None = {positional} if positional else None
    if inspect.isclass(target):
        parser.add_class_arguments(target, fail_untyped=False, skip=skip)
    else:
        parser.add_function_arguments(target, fail_untyped=False, skip=skip)
    return types_of(parser), {action.dest for action in parser._actions if action.required}


def types_of(parser: ArgumentParser) -> dict[str, Any]:
    """The types of a parser's settings by key; jsonargparse has no public way to ask for them."""
    found: dict[str, Any] = {}
    for action in parser._actions:
        plain = bool if action.nargs == 0 else str
        if action.dest not in ("help", "print_config") and not action.dest.endswith(".help"):
            found[action.dest] = getattr(action, "_typehint", plain)
    groups = {name for name in found if any(other.startswith(f"{name}.") for other in found)}
    return {name: hint for name, hint in found.items() if name not in groups}


def options(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def takes_null(hint: Any) -> bool:
    """Whether null is a value of a type."""
    return any(one in (type(None), Any, object) or "Unvalidated" in repr(one) for one in options(hint))


def made_by(hint: Any) -> tuple[type | None, int]:
    """The class that a ``Callable[[...], Class]`` makes, and how many arguments it is called with."""
    *called_with, made = get_args(hint) or (None,)
    if get_origin(hint) is not Callable or not inspect.isclass(made) or made.__module__ == "builtins":
        return None, 0
    return made, len(called_with[0]) if isinstance(called_with[0], list) else 0


def subclasses(base: type) -> set[type]:
    """A class and all that inherit from it, as far as they are imported."""
    return {base} | {found for child in type.__subclasses__(base) for found in subclasses(child)}


def _returned(function: Any) -> Any:
    """What a function says that it returns."""
    try:
        return get_type_hints(function).get("return")
    except (TypeError, NameError):  # no function, or one whose types can't be resolved
        return None


def _path(cls: type) -> str:
    """The shortest path of a class."""
    parts = cls.__module__.split(".")
    modules = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    shortest = next(
        (name for name in modules if getattr(sys.modules.get(name), cls.__name__, None) is cls), cls.__module__
    )
    return f"{shortest}.{cls.__name__}"


def _nearest_class(name: str, base: type) -> str:
    known = (cls.__name__ for cls in subclasses(base) if not cls.__name__.startswith("_"))
    return nearest(name, known, "." if is_own(base.__module__) else ": give the full path of one.")
