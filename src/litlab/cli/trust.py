"""Which classes and functions a config may name.

A YAML file that you write is code: it may name classes of any module you have. The config of a run or checkpoint may
come from somebody else: it may only name classes of the team's package, litlab, PyTorch and Lightning, and of modules
that ``--allow_modules`` adds. See docs/security.md.
"""

import inspect
import sys
import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

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

from litlab.cli.resolve import imported
from litlab.errors import UserError
from litlab.util.team import package

LIBRARIES = ("litlab", "torch", "torchvision", "lightning", "torchmetrics", "torchao.optim")
# What a config describes: a function in the place of a class must return one of these, by its annotation.
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


def check_names(config: Any, foreign: bool, trusted: Iterable[str]) -> None:
    """Check the functions that a parsed config names against what their places take; nothing of it was called yet.

    The parser has checked classes where a setting says which it takes. It lets functions pass in the place of a class,
    and anything at all where a setting takes any callable.

    Args:
        config: The parsed config.
        foreign: Whether it may be somebody else's.
        trusted: Modules of ``--allow_modules``.

    Raises:
        UserError: For the first that does not belong there.
    """
    packages = {package(), "litlab", *(name.partition(".")[0] for name in trusted)}
    for key, path, target, wanted in _find_names(config, "", None):
        module = getattr(target, "__module__", "")
        if isinstance(target, type):
            fits = issubclass(target, BUILT)
        elif path is None:  # where any function fits
            fits = module.startswith(FUNCTIONS)
        elif any(issubclass(cls, wanted) for cls in _classes_in(_annotations(target).get("return"))):
            continue
        else:
            what = " or ".join(cls.__name__ for cls in wanted)
            raise UserError(f"{key}: {path} is not a class; name one, or a function annotated to return {what}")
        if foreign and not fits and module.partition(".")[0] not in packages:
            name = path or f"{module}.{target.__qualname__}"
            raise UserError(f"{key}: the config of a run or checkpoint may not name {name}; see docs/security.md")


def explain_denied(path: str) -> str:
    """Return why the config of a run or checkpoint may not name something."""
    module = path.partition(".")[0]
    if module in NEVER:
        return f"'{path}' can't be named in a config; it could run commands, load code or change files"
    return (
        f"'{path}' is named by the config of a run or checkpoint, which may only name classes of "
        f"{', '.join((package(), *LIBRARIES))}; if you trust it, add --allow_modules {module}"
    )


def _find_names(config: Any, key: str, wanted: Any) -> Iterator[tuple[str, str | None, Any, tuple[type, ...]]]:
    """Yield the key of each class or function, its class path if it has one, itself, and the classes that fit there."""
    if isinstance(config, Namespace):
        config = vars(config)
    if isinstance(config, dict):
        takes = dict.fromkeys(config, wanted)
        path = config.get("class_path")
        if isinstance(path, str):
            target = imported(path)
            yield key, path, target, tuple(cls for cls in _classes_in(wanted) if issubclass(cls, BUILT)) or BUILT
            takes = _annotations(target)
            config = config.get("init_args") or {}
            config = vars(config) if isinstance(config, Namespace) else config
        for name, value in config.items():
            yield from _find_names(value, f"{key}.{name}" if key else name, takes.get(name))
    elif isinstance(config, list | tuple | set):
        for value in config:
            yield from _find_names(value, key, wanted)
    elif inspect.isroutine(config) or isinstance(config, type):
        yield key, None, config, ()


def _annotations(target: Any) -> dict[str, Any]:
    """Return the types of the parameters of a function or class, those of base classes included, and ``return``."""
    functions = [cls.__init__ for cls in reversed(target.__mro__)] if isinstance(target, type) else [target]
    found: dict[str, Any] = {}
    for function in functions:
        with suppress(TypeError, NameError, AttributeError):  # a builtin, or names that only type checkers import
            found |= typing.get_type_hints(function)
    return found


def _classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation; of ``Callable[[Iterable], Optimizer] | None``, what it returns."""
    parts = typing.get_args(annotation)  # the parameters of a callable are a list, which has no parts
    if isinstance(annotation, type) and not parts:
        yield annotation
    for part in parts:
        yield from _classes_in(part)
