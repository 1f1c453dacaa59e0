"""Classes as configs name them, by full path or short name."""

import importlib
import inspect
import sys
from typing import Any, get_type_hints

from litlab.errors import UserError, first_line
from litlab.util.team import is_own
from litlab.util.text import nearest

EXTRAS = {"torchao": "torchao"}  # packages of the optional dependencies in pyproject.toml, and the name there


def find_class(path: str, base: type) -> Any:
    """Return the class or function that a class path in a config leads to.

    Args:
        path: A full path, or the name of a subclass alone.
        base: The class that is needed.

    Raises:
        UserError: If there is no such class or function.
    """
    if "." not in path:
        named = {_shortest_path(cls): cls for cls in subclasses(base) if cls.__name__ == path}
        if len(named) > 1:
            raise UserError(f"there are several classes '{path}'; give the path, {' or '.join(sorted(named)[:4])}")
        if not named:
            known = (cls.__name__ for cls in subclasses(base) if not cls.__name__.startswith("_"))
            otherwise = "" if is_own(base.__module__) else "; give its full path"
            raise UserError(f"there is no class '{path}'{nearest(path, known, otherwise)}")
        return next(iter(named.values()))
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(path.partition(".")[0])
        remedy = f"; pip install '.[{extra}]'" if extra == error.name else ""
        raise UserError(f"'{path}' can't be imported; there is no module '{error.name}'{remedy}") from error
    except AttributeError as error:
        raise UserError(f"{module} has no '{name}'{nearest(name, dir(sys.modules.get(module)))}") from error
    except Exception as error:  # whatever the module raises
        raise UserError(f"'{path}' can't be imported; {first_line(error)}") from error
    made = found if inspect.isclass(found) else _returned(found)
    if not inspect.isclass(made) or not issubclass(made, base):
        raise UserError(
            f"'{path}' is not {a_class(base)}{'' if inspect.isclass(found) else ', nor annotated to return one'}"
        )
    if inspect.isabstract(found):
        raise UserError(f"'{path}' is abstract; name one of its subclasses")
    return found


def is_general(base: type) -> bool:
    """Return whether a class stands for its subclasses, such as Callback, and is never meant itself."""
    return inspect.isabstract(base) or (bool(subclasses(base) - {base}) and not is_own(base.__module__))


def subclasses(base: type) -> set[type]:
    """Return a class and all that inherit from it, as far as they are imported and their paths lead to them.

    Tracing a module leaves subclasses behind that have its name and module.
    """
    below = {found for child in type.__subclasses__(base) for found in subclasses(child)}
    return {base} | {cls for cls in below if _leads_to(cls)}


def a_class(cls: type) -> str:
    """Return the name of a class with its article."""
    return f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}"


def _returned(function: Any) -> Any:
    """Return what a function is annotated to return."""
    try:
        return get_type_hints(function).get("return")
    except (TypeError, NameError):  # not a function, or one whose types can't be resolved
        return None


def _leads_to(cls: type) -> bool:
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is cls


def _shortest_path(cls: type) -> str:
    parts = cls.__module__.split(".")
    modules = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    found = (name for name in modules if getattr(sys.modules.get(name), cls.__name__, None) is cls)
    return f"{next(found, cls.__module__)}.{cls.__name__}"
