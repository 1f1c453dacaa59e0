"""Which classes and functions a config may name.

A YAML file that you write is code: it may name classes of any module you have. The config of a run or checkpoint may
come from somebody else: it may only name classes of the team's package, litlab, PyTorch and Lightning, and of modules
that ``--allow_modules`` adds. See docs/security.md.
"""

import inspect
import sys
import typing
from collections.abc import Iterator
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

from litlab.errors import UserError
from litlab.util.class_blocks import imported
from litlab.util.team import package

LIBRARIES = ("litlab", "torch", "torchvision", "lightning", "torchmetrics", "torchao.optim")
# Parts of these that load or run code by their arguments, and that no experiment needs.
RISKY = (
    "torch.hub", "torch.load", "torch.serialization", "torch.package", "torch.jit", "torch.fx", "torch.classes",
    "torch.ops", "torch.utils.cpp_extension", "torch.utils.model_zoo", "torch.distributed.rpc", "torch.distributed.nn",
    "torch.distributed.run", "torch.distributed.launcher", "torch.multiprocessing", "torch.testing", "torch.export",
    "torchvision.datasets", "lightning.pytorch.serve", "lightning.app", "litlab.sweep",
)  # fmt: skip
# What a config describes: a function in the place of a class must return one of these, by its annotation.
BUILT = (
    nn.Module, Optimizer, LRScheduler, LightningDataModule, Callback, Logger, Profiler, Strategy, Accelerator,
    Precision, ClusterEnvironment, CheckpointIO, LayerSync,
)  # fmt: skip
# What may be named where any function fits, as an activation; the last one is a default of BackboneFinetuning.
FUNCTIONS = ("torch.nn.functional", "torch._C._nn", "lightning.pytorch.callbacks.finetuning")
NEVER = {*sys.stdlib_module_names, "jsonargparse"}


def restrict_imports(foreign: bool, allowed: str | None) -> None:
    """Tell the parser what it may import, until the process ends.

    Args:
        foreign: Whether the config may be somebody else's.
        allowed: Modules of ``--allow_modules``, separated by commas.

    Raises:
        UserError: If one of them is part of Python itself, or no name of a module.
    """
    modules = [name.strip() for name in (allowed or "").split(",") if name.strip()]
    for name in modules:
        if not all(part.isidentifier() for part in name.split(".")) or name.partition(".")[0] in NEVER:
            raise UserError(f"--allow_modules: a config may not name '{name}'; give a package such as mylib")
    set_parsing_settings(import_path_denylist=list(RISKY), instantiate_subclass_spec_in_any=False)
    if foreign:
        trusted = [package(), *LIBRARIES, *modules]
        set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=trusted)


def check_names(config: Any, foreign: bool, allowed: str | None) -> None:
    """Check the functions that a parsed config names against what their places take; nothing of it was called yet.

    The parser has checked classes where a setting says which it takes. It lets functions pass in the place of a class,
    and anything at all where a setting takes any callable.

    Args:
        config: The parsed config.
        foreign: Whether it may be somebody else's.
        allowed: Modules of ``--allow_modules``, separated by commas.

    Raises:
        UserError: For the first that does not belong there.
    """
    trusted = {package(), "litlab", *(name.strip().partition(".")[0] for name in (allowed or "").split(","))}
    for key, value, wanted in _find_names(config, "", None):
        target = imported(value) if isinstance(value, str) else value
        if target is None:
            raise UserError(f"{key}: there is no '{value}'; correct the path")
        name = value if isinstance(value, str) else f"{target.__module__}.{target.__qualname__}"
        is_class = isinstance(target, type)
        if isinstance(value, str) and not is_class:
            returned = _classes_in(_annotations(target).get("return"))
            if not any(issubclass(cls, wanted or BUILT) for cls in returned):
                what = " or ".join(cls.__name__ for cls in wanted) or "a module, optimizer or callback"
                raise UserError(f"{key}: {name} is not a class; name one, or a function annotated to return {what}")
            continue
        module = target.__module__
        fits = issubclass(target, BUILT) if is_class else module.startswith(FUNCTIONS)
        if foreign and not fits and module.partition(".")[0] not in trusted:
            raise UserError(f"{key}: the config of a run or checkpoint may not name {name}; see docs/security.md")


def explain_denied(path: str, everything: bool) -> str:
    """Return why a config may not name something.

    Args:
        path: What it names.
        everything: Whether that is only because the config may be somebody else's.
    """
    if everything and path.partition(".")[0] not in NEVER:
        return (
            f"'{path}' is named by the config of a run or checkpoint, which may only name classes of "
            f"{', '.join((package(), *LIBRARIES))}; if you trust it, add --allow_modules {path.partition('.')[0]}"
        )
    return f"'{path}' can't be named in a config; it could run commands, load code or change files"


def _find_names(config: Any, key: str, wanted: Any) -> Iterator[tuple[str, Any, tuple[type, ...]]]:
    """Yield each class path and each function with its key and the classes that its place takes, if it says so."""
    if isinstance(config, Namespace | dict):
        settings = vars(config) if isinstance(config, Namespace) else config
        path = settings.get("class_path")
        if isinstance(path, str):
            yield key, path, tuple(cls for cls in _classes_in(wanted) if issubclass(cls, BUILT))
            takes = _annotations(imported(path))
            inside = settings.get("init_args") or {}
            settings = vars(inside) if isinstance(inside, Namespace) else inside
            for name, value in settings.items():
                yield from _find_names(value, f"{key}.{name}", takes.get(name))
            return
        for name, value in settings.items():
            yield from _find_names(value, f"{key}.{name}" if key else str(name), wanted)
    elif isinstance(config, list | tuple | set):
        for value in config:
            yield from _find_names(value, key, wanted)
    elif inspect.isroutine(config) or isinstance(config, type):
        yield key, config, ()


def _annotations(target: Any) -> dict[str, Any]:
    """Return the types of the parameters of a function or class, those of base classes included, and ``return``."""
    functions = [cls.__init__ for cls in reversed(target.__mro__)] if isinstance(target, type) else [target]
    found: dict[str, Any] = {}
    for function in functions:
        try:
            found |= typing.get_type_hints(function)
        except (TypeError, NameError, AttributeError):  # a builtin, or names that only type checkers import
            found |= getattr(function, "__annotations__", {})
    return found


def _classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation; of ``Callable[[Iterable], Optimizer] | None``, what it returns."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        yield annotation
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is not None and parts and isinstance(parts[0], list):
        parts = parts[-1:]
    for part in parts:
        yield from _classes_in(part)
