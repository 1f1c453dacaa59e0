"""Packages whose names are imported when they are first asked for, so that a command imports what
it uses.
"""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def export_lazily(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562), for the names that it imports under ``if
    TYPE_CHECKING``: only type checkers and editors do that at once.

    Args:
        package: Its name.
    """
    tree = ast.parse(inspect.getsource(sys.modules[package]))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get_attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get_attribute
