"""What the parser knows of settings: type, help and default of each."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.cli import LightningArgumentParser
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.cli.config import Command, ExperimentParser
from litlab.commands.editor.hints import types_of

VERBS = ("fit", "validate", "test", "predict")


@dataclass(frozen=True)
class Setting:
    """A setting of a command, or an argument of a class or function.

    Args:
        hint: Its type.
        help: What the documentation says of it.
        default: Its default; None also where it has none.
    """

    hint: Any
    help: str
    default: Any


def settings_of_verbs() -> dict[str, dict[str, Setting]]:
    """Return the settings of ``fit``, ``validate``, ``test`` and ``predict`` by key, such as ``trainer.max_epochs``."""
    return {verb: _settings(new_parser(verb)) for verb in VERBS}


def settings_of(target: Callable[..., Any]) -> dict[str, Setting]:
    """Return the arguments of a class or function by name, without what an optimizer or schedule works on.

    Args:
        target: The class or function.
    """
    parser = ArgumentParser(exit_on_error=False)
    if not inspect.isclass(target):
        parser.add_function_arguments(target, fail_untyped=False)
        return _settings(parser)
    skip: Any = {1} if issubclass(target, (Optimizer, LRScheduler)) else None
    parser.add_class_arguments(target, fail_untyped=False, skip=skip)
    return _settings(parser)


def _settings(parser: ArgumentParser) -> dict[str, Setting]:
    actions = {action.dest: action for action in parser._actions}
    return {
        key: Setting(hint, " ".join((actions[key].help or "").split()), actions[key].default)
        for key, hint in types_of(parser).items()
    }


def new_parser(verb: str) -> ExperimentParser:
    """Return the parser of a verb, for what wants to know its settings."""

    class Unparsed(Command):
        def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
            self.config = Namespace(seed_everything=False)

    return Unparsed([verb]).parser  # pyright: ignore[reportReturnType]
