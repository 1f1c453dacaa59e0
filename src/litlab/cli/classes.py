"""Which classes and functions a config names: where they are, and what the config of somebody else may name.

Only the modules of the classes that a command names are imported, so that short names find them. A YAML file that you
write is code: it may name classes of any module you have. The config of a run or checkpoint may come from somebody
else: it may only name classes of the team's package, litlab, PyTorch and Lightning, and of modules that
``--allow_modules`` adds. See docs/security.md.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from jsonargparse import Namespace, set_parsing_settings
from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
from lightning.pytorch import Callback, LightningDataModule
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins import LayerSync, Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.errors import UserError
from litlab.util.team import package, package_folder

ROOMS = ("callbacks", "data", "metrics", "nn", "optim", "parallel", "tasks")  # of litlab, whose classes YAML may name
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
WORD = re.compile(r"(?<![\w.])[A-Z]\w*")


@cache
def find_classes(team: str) -> dict[str, list[str]]:
    """Return the modules of all classes of litlab and the team's package, by class name; nothing is imported.

    Args:
        team: Import name of the team's package.
    """
    litlab = Path(__file__).parents[1]
    folders = {f"litlab.{room}": litlab / room for room in ROOMS}
    folders[team] = package_folder()

    found: dict[str, list[str]] = {}
    for parent, folder in folders.items():
        for file in folder.rglob("*.py"):
            module = ".".join([parent, *file.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__")
            for name in CLASS.findall(file.read_text(encoding="utf-8")):
                found.setdefault(name, []).append(module)
    return found


def import_classes(texts: Iterable[str]) -> None:
    """Import the classes that texts such as configs and flags name, so that the parser finds them by short name."""
    classes = find_classes(package())
    words = {word for text in texts for word in WORD.findall(text)}
    for word in words & classes.keys():
        for module in classes[word]:
            import_module(module)


def import_all_classes() -> None:
    """Import every class that a config could name, for help and schemas."""
    import_classes(find_classes(package()))


def imported(path: str) -> Any:
    """Return what a class path leads to, as far as its module has been imported; else None."""
    module, _, name = path.rpartition(".")
    parent = sys.modules.get(module) or (imported(module) if "." in module else None)  # or: a method or nested class
    return getattr(parent, name, None)


LIBRARIES = ("litlab", "torch", "torchvision", "lightning", "torchmetrics", "torchao.optim", "timm")
# What a config describes: a class must be one of these, and a function in its place return one, by its annotation.
BUILT = (
    nn.Module, Optimizer, LRScheduler, LightningDataModule, Callback, Logger, Profiler, Strategy, Accelerator,
    Precision, ClusterEnvironment, CheckpointIO, LayerSync,
)  # fmt: skip
# What may be named where any function fits, as an activation; the last one is a default of BackboneFinetuning.
FUNCTIONS = ("torch.nn.functional", "torch._C._nn", "lightning.pytorch.callbacks.finetuning")
NEVER = {*sys.stdlib_module_names, "jsonargparse"}


def restrict_imports(foreign: bool, allowed: str | None) -> list[str]:
    """Tell the parser what it may import, until the process ends.

    Args:
        foreign: Whether the config may be somebody else's.
        allowed: Modules of ``--allow_modules``, separated by commas.

    Returns:
        These modules.

    Raises:
        UserError: If one of them is part of Python itself, or no name of a module.
    """
    modules = [name.strip() for name in (allowed or "").split(",") if name.strip()]
    for name in modules:
        if not name.replace(".", "").isidentifier() or name.partition(".")[0] in NEVER:
            raise UserError(f"--allow_modules: a config may not name '{name}'; give a package such as mylib")
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    if foreign:
        trusted = [package(), *LIBRARIES, *modules]
        set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=trusted)
    return modules


def check_names(config: Any, trusted: Iterable[str]) -> None:
    """Check what the config of a run or checkpoint names; nothing of it was called yet.

    The parser has checked where it comes from, and classes where a setting says which it takes. It lets functions pass
    in the place of a class, and anything at all where a setting takes any callable.

    Args:
        config: The parsed config.
        trusted: Modules of ``--allow_modules``.

    Raises:
        UserError: For the first that a config may not name.
    """
    packages = {package(), "litlab", *(name.partition(".")[0] for name in trusted)}
    for key, target, is_called in _find_names(config, ""):
        module = str(getattr(target, "__module__", ""))
        is_own = module.partition(".")[0] in packages
        if isinstance(target, type):
            fits = is_own or issubclass(target, BUILT)
        elif is_called:
            fits = _returns_built(target)
        else:
            fits = is_own or module.startswith(FUNCTIONS)
        if not fits:
            name = f"{module}.{getattr(target, '__qualname__', target)}"
            raise UserError(f"{key}: the config of a run or checkpoint may not name {name}; see docs/security.md")


def explain_denied(path: str) -> str:
    """Return why the config of a run or checkpoint may not name something."""
    return (
        f"'{path}' is named by the config of a run or checkpoint, which may only name classes of "
        f"{', '.join((package(), *LIBRARIES))}; if you trust it, add --allow_modules {path.partition('.')[0]}"
    )


def _find_names(config: Any, key: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield the key of each class or function that is named, itself, and whether it is called to build something."""
    if isinstance(config, Namespace):
        config = vars(config)
    if isinstance(config, dict):
        if isinstance(config.get("class_path"), str):
            yield key, imported(config["class_path"]), True
        for name, value in config.items():
            yield from _find_names(value, f"{key}.{name}".removeprefix(".").removesuffix(".init_args"))
    elif isinstance(config, list | tuple | set):
        for value in config:
            yield from _find_names(value, key)
    elif inspect.isroutine(config) or isinstance(config, type):
        yield key, config, False


def _returns_built(function: Any) -> bool:
    """Return whether a function says that it returns one of the classes that configs describe."""
    with suppress(TypeError, NameError, AttributeError):  # a builtin, or names that only type checkers import
        result = get_type_hints(function).get("return")
        return isinstance(result, type) and issubclass(result, BUILT)
    return False
