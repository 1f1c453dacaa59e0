"""Which classes and functions a config or checkpoint may name: checked before any of them is called.

A YAML file that you write is code: it may name classes of any module you have. The config of a run, and the
hyper-parameters in a checkpoint, may come from somebody else: they may only name classes of the team's package, litlab,
PyTorch and Lightning, and of the modules that ``--allow_modules`` adds. See docs/security.md.
"""

import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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

from litlab.cli.bases import with_bases
from litlab.cli.named_modules import NEVER, is_of_a_run, modules_named, values_of
from litlab.errors import UserError
from litlab.util.class_blocks import imported
from litlab.util.former_names import former_names
from litlab.util.team import is_own, package

LIBRARIES = ("litlab", "torch", "torchvision", "lightning", "torchmetrics", "torchao.optim")
# Parts of these that load or run code by their arguments, and that no experiment needs.
RISKY = (
    "torch.hub", "torch.load", "torch.serialization", "torch.package", "torch.jit", "torch.fx", "torch.classes",
    "torch.ops", "torch.utils.cpp_extension", "torch.utils.model_zoo", "torch.distributed.rpc", "torch.distributed.nn",
    "torch.distributed.run", "torch.distributed.launcher", "torch.multiprocessing", "torch.testing", "torch.export",
    "torchvision.datasets", "lightning.pytorch.serve", "lightning.app", "litlab.sweep",
)  # fmt: skip
# What a config describes: a function that it names must return one of these, by its annotation.
BUILT = (
    nn.Module, Optimizer, LRScheduler, LightningDataModule, Callback, Logger, Profiler, Strategy, Accelerator,
    Precision, ClusterEnvironment, CheckpointIO, LayerSync,
)  # fmt: skip
# What may be named where any function fits, as an activation; the last one is a default of BackboneFinetuning.
FUNCTIONS = ("torch.nn.functional", "torch._C._nn", "lightning.pytorch.callbacks.finetuning")


def trusted() -> tuple[str, ...]:
    """Return the packages whose classes the config of a run or checkpoint may name."""
    return (package(), *former_names(package()), *LIBRARIES)


@dataclass(frozen=True)
class Trust:
    """What the configs of a command may name.

    Args:
        anything: Whether all of them are the user's own.
        modules: Beside the team's package and `LIBRARIES`, the modules or packages whose classes may be named if not.

    Raises:
        UserError: If one is not a valid name of a module, or part of Python itself.
    """

    anything: bool = True
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for module in self.modules:
            if not all(part.isidentifier() for part in module.split(".")):
                raise UserError(
                    f"--allow_modules: '{module}' is not the name of a module; give one such as mylib.networks"
                )
            if _root(module) in NEVER:
                raise UserError(f"--allow_modules: no config may name {module}, which can run commands; leave it out")

    def enforce(self) -> None:
        """Make the parser import nothing else, until the process ends.

        Not even the user's own config may name what runs commands, loads code or changes files: jsonargparse has a list
        (``os``, ``subprocess``, ``pickle``, ``builtins.eval`` ...). Where a setting takes anything, a dictionary with a
        ``class_path`` stays a dictionary.
        """
        set_parsing_settings(import_path_denylist=list(RISKY), instantiate_subclass_spec_in_any=False)
        if not self.anything:
            set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=[*trusted(), *self.modules])

    def check(self, config: Any) -> None:
        """Check all classes and functions that a parsed config names against what their places take.

        The parser has checked the classes where a setting says which it takes. What it lets pass are functions in the
        place of a class, which it would call, and anything at all where a setting takes any callable.

        Args:
            config: The parsed config of a verb.

        Raises:
            UserError: If one does not belong there; nothing has been called.
        """
        for key, value, wanted in _named(config, "", None):
            target = _found(key, value) if isinstance(value, str) else value
            name = value if isinstance(value, str) else f"{target.__module__}.{target.__qualname__}"
            is_class = isinstance(target, type)
            if isinstance(value, str) and not is_class:  # a function in the place of a class
                if not any(issubclass(cls, wanted or BUILT) for cls in _classes(_annotations(target).get("return"))):
                    what = " or ".join(cls.__name__ for cls in wanted) or "a module, optimizer or callback"
                    raise UserError(f"{key}: {name} is not a class; name one, or a function annotated to return {what}")
                continue
            module = target.__module__
            known = self.anything or is_own(module) or _root(module) in map(_root, self.modules)
            if not known and not (issubclass(target, BUILT) if is_class else module.startswith(FUNCTIONS)):
                raise UserError(f"{key}: the config of a run or checkpoint may not name {name}; see docs/security.md")


def trust_of(arguments: list[str], foreign: bool) -> Trust:
    """Return what the configs of a command may name.

    Args:
        arguments: The command line. The modules that it names, or a config file on it that its user wrote, are trusted.
        foreign: Whether the config of a run or checkpoint is read as well.
    """
    arguments = with_bases(arguments)
    allowed = [part.strip() for value in values_of(arguments, "--allow_modules") for part in value.split(",")]
    foreign = foreign or any(is_of_a_run(Path(value)) for value in values_of(arguments, "--config", "-c"))
    return Trust(not foreign, (*allowed, *sorted(modules_named(arguments))))


def denied(path: str, everything: bool) -> str:
    """Return why a config may not name something.

    Args:
        path: What it names.
        everything: Whether that is only because the config is not the user's own.
    """
    if everything and _root(path) not in NEVER:
        return (
            f"'{path}' is named by the config of a run or checkpoint, which may only name classes of "
            f"{', '.join(trusted())}; if you trust it, add --allow_modules {_root(path)}"
        )
    return f"'{path}' can't be named in a config; it could run commands, load code or change files"


def _named(config: Any, key: str, wanted: Any) -> Iterator[tuple[str, Any, tuple[type, ...]]]:
    """Yield each class path and each function with its key and the classes that its place takes, if it says so."""
    if isinstance(config, Namespace | dict):
        settings = _mapping(config)
        path = settings.get("class_path")
        if isinstance(path, str):
            yield key, path, tuple(cls for cls in _classes(wanted) if issubclass(cls, BUILT))
            takes = _annotations(_found(key, path))
            for name, value in _mapping(settings.get("init_args")).items():
                yield from _named(value, f"{key}.{name}", takes.get(name))
            return
        for name, value in settings.items():
            yield from _named(value, f"{key}.{name}" if key else str(name), wanted)
    elif isinstance(config, list | tuple | set):
        for value in config:
            yield from _named(value, key, wanted)
    elif inspect.isroutine(config) or isinstance(config, type):
        yield key, config, ()


def _mapping(settings: Any) -> dict[str, Any]:
    return vars(settings) if isinstance(settings, Namespace) else settings or {}


def _found(key: str, path: str) -> Any:
    if (found := imported(path)) is None:
        raise UserError(f"{key}: there is no '{path}'; correct the path")
    return found


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


def _classes(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation; of ``Callable[[Iterable], Optimizer] | None``, what it returns."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        yield annotation
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is not None and parts and isinstance(parts[0], list):  # Callable: its result
        parts = parts[-1:]
    for part in parts:
        yield from _classes(part)


def _root(module: str) -> str:
    return module.partition(".")[0]
