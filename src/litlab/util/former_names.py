"""The names that the team's package had before it was renamed.

The configs and checkpoints of runs name classes by their paths: ``old.networks.mine.Mine``. Such a path leads to the
class of the package as it is called now, and counts as the package's own.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_now: dict[str, str] = {}  # by former name


def formerly(package: str, *names: str) -> None:
    """Let a package and its modules be imported by the names that it had before, as the same modules.

    Call it in the package's ``__init__``: ``formerly(__name__, "old")``.

    Args:
        package: Its name.
        names: Its former names, which no other package may have.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _now.update(dict.fromkeys(names, package))


def former_names(package: str) -> tuple[str, ...]:
    """Return the former names of a package that has been imported."""
    return tuple(name for name, now in _now.items() if now == package)


def path_of_now(path: str) -> str:
    """Return the path of a class or function that a run has saved as it is now; any other text stays as it is.

    ``old.csv`` may be a file: what follows the former name must be a module.
    """
    root, _, rest = path.partition(".")
    if root not in _now or not all(part.isidentifier() for part in path.split(".")):
        return path
    return _renamed(path) if find_spec(f"{_now[root]}.{rest.partition('.')[0]}") is not None else path


def _renamed(path: str) -> str:
    root, dot, rest = path.partition(".")
    return _now.get(root, root) + dot + rest


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of a renamed package by their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in _now or find_spec(_renamed(fullname)) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_renamed(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: it has been executed, and only lost its own spec to the import system."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
