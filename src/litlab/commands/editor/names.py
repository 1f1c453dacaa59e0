"""What a config may name in the place of a class, and by which names: those that an editor offers.

Other classes and functions may be named too, by their full path.
"""

import importlib
import inspect
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningModule
from torchmetrics import Metric

from litlab.cli.trust import BUILT
from litlab.commands.editor.class_paths import find_class, is_general, subclasses
from litlab.errors import UserError
from litlab.util.team import is_own, package

# Parts of the libraries that load or run code by their arguments, and that no experiment needs: they are not offered.
RISKY = (
    "torch.hub", "torch.load", "torch.serialization", "torch.package", "torch.jit", "torch.fx", "torch.classes",
    "torch.ops", "torch.utils.cpp_extension", "torch.utils.model_zoo", "torch.distributed.rpc", "torch.distributed.nn",
    "torch.distributed.run", "torch.distributed.launcher", "torch.multiprocessing", "torch.testing", "torch.export",
    "torchvision.datasets", "lightning.pytorch.serve", "lightning.app", "litlab.commands.sweep",
)  # fmt: skip
NETWORKS = "torchvision.models"  # whose functions make networks
SPECIAL = (LightningModule, Metric)  # modules, but no networks


@dataclass(frozen=True)
class Named:
    """A class, or a function that makes an object of one.

    Args:
        target: The class or function.
        short: Its name, where that is enough; else None.
        paths: The paths that lead to it, the shortest first.
    """

    target: Any
    short: str | None
    paths: tuple[str, ...]

    @property
    def usual(self) -> str:
        """The name that configs use."""
        return self.short or self.paths[0]

    @property
    def names(self) -> list[str]:
        """All names that it goes by."""
        return [*filter(None, [self.short]), *self.paths]

    @property
    def package(self) -> str:
        """The package that it is from."""
        return self.paths[0].partition(".")[0]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.target) or "").partition("\n")[0]


def is_described(base: type) -> bool:
    """Return whether the settings of a class are for configs: not those of a Tensor or another object of a library."""
    return is_own(base.__module__) or issubclass(base, (*BUILT, *SPECIAL))


def named(base: type) -> list[Named]:
    """Return what a config may name where it describes an object of a class.

    Args:
        base: The class.
    """
    classes = subclasses(base)
    count = Counter(cls.__name__ for cls in classes)
    home = ".".join(_paths(base)[0].split(".")[:-1][:2])  # torch.nn, torch.optim, lightning, torchmetrics
    others = tuple(one for one in SPECIAL if one is not base and issubclass(one, base))
    found = []
    for cls in classes:
        is_abstract = inspect.isabstract(cls) or (cls is base and is_general(base))
        is_offered = _is_public(cls, home) or cls is base
        if is_offered and not is_abstract and not issubclass(cls, others):
            short = cls.__name__ if count[cls.__name__] == 1 else None
            found.append(Named(cls, short, _paths(cls)))
    found += [Named(function, None, (path,)) for path, function in _functions() if _makes(path, base)]
    return sorted(found, key=lambda one: (one.package != package(), not is_own(one.package), one.usual))


def _paths(cls: type) -> tuple[str, ...]:
    parts = cls.__module__.split(".")
    modules = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    found = [name for name in modules if getattr(sys.modules.get(name), cls.__name__, None) is cls]
    return tuple(f"{module}.{cls.__name__}" for module in found or [cls.__module__])


def _is_public(cls: type, home: str) -> bool:
    """Return whether a class is the team's, exported by litlab, or public in the library that the base is from."""
    path = _paths(cls)[0]
    if any(part.startswith("_") for part in path.split(".")) or path.startswith(RISKY) or "." in cls.__qualname__:
        return False
    return path.startswith((f"{package()}.", f"{home}.")) or (path.startswith("litlab.") and path.count(".") == 2)


def _functions() -> list[tuple[str, Any]]:
    """Return public functions of the team, of litlab's subpackages and of torchvision, each with its path."""
    modules = [module for name, module in sorted(sys.modules.items()) if f"{name}.".startswith(f"{package()}.")]
    modules += [module for name, module in sorted(sys.modules.items()) if re.fullmatch(r"litlab\.\w+", name)]
    found = []
    for module in [*modules, importlib.import_module(NETWORKS)]:
        for name in getattr(module, "__all__", vars(module)):
            function = getattr(module, name)
            is_from_here = f"{getattr(function, '__module__', '')}.".startswith(f"{module.__name__}.")
            if inspect.isfunction(function) and is_from_here and not name.startswith("_"):
                found.append((f"{module.__name__}.{name}", function))
    return found


def _makes(path: str, base: type) -> bool:
    """Return whether the parser takes a function where an object of a class is described."""
    try:
        find_class(path, base)
    except UserError:
        return False
    return True
