"""Packages whose names are imported when they are first asked for, so that a command imports what
it uses.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def export_lazily(package: str, modules: dict[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562).

    Args:
        package: Its name.
        modules: The names that it exports, separated by spaces, by the module that has them.
            Beside it stand the same imports for type checkers and editors.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get_attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get_attribute
