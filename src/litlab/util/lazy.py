"""Packages that import what they export when it is first asked for, so that a command imports what
it uses.
"""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def export_lazily(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which makes the imports under its
    ``if TYPE_CHECKING`` one by one.

    Args:
        package: Name of the package, whose source says which module has what.
    """
    modules: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[package]))):
        if isinstance(node, ast.ImportFrom):
            modules |= dict.fromkeys([alias.name for alias in node.names], node.module)

    def get_attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return get_attribute
