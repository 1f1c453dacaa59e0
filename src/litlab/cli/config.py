"""LightningCLI as a parser: YAML and flags become one config, whose parts are built when they are
asked for.
"""

import json
import os
import re
from collections.abc import Container
from contextlib import nullcontext
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from jsonargparse import Namespace, get_loader, set_loader
from jsonargparse.typing import register_type
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from litlab.cli.argv import ONLY_FLAGS, Flags, read_command_line
from litlab.cli.classes import import_all_classes, import_classes, imported
from litlab.cli.help import FIRST_SCREEN, HelpFormatter, write_usage
from litlab.cli.precision import ExperimentTrainer
from litlab.cli.sections import OF_THE_COMMAND, SECTIONS, add_arguments
from litlab.cli.trust import check_config, load_weights_only, restrict_imports
from litlab.errors import UserError, building
from litlab.util.recipes import is_fact, plain_recipe

# What a config can't set to null.
NEEDED = (
    "trainer", "model", "data", "seed_everything", "experiment", "test_after_fit", "channels_last",
)  # fmt: skip
VARIABLE = re.compile(r"\$\{(\w+)\}")  # ${NAME}, of the environment


@cache
def prepare_jsonargparse() -> None:
    """Tell jsonargparse, and YAML, what they don't know: for all parsers of this process, once.

    What a command may import is set beside it, by `litlab.cli.trust.restrict_imports`. Nothing else
    changes a library for the whole process on the way to the parser.
    """
    # A type of settings, as of Lightning's WeightAveraging, that jsonargparse (4.53) has not.
    register_type(torch.device)
    # Members of an Enum are written as their values, which can be read back: the interval of
    # Lightning's Timer is one by default.
    yaml.SafeDumper.add_multi_representer(
        Enum, lambda dumper, member: dumper.represent_data(member.value)
    )

    load_yaml = get_loader("yaml")

    def load_setting(text: str) -> Any:
        # jsonargparse (4.53) makes the word of --model.network.weights null.
        return None if text == "None" else load_yaml(text)

    def load_with_variables(text: str) -> Any:
        return load_setting(VARIABLE.sub(fill_variable, text))

    set_loader("yaml", load_setting, (yaml.YAMLError,))
    # Not for the configs of others: they could have what they find there sent or written somewhere.
    set_loader("yaml with variables", load_with_variables, (yaml.YAMLError,))


def fill_variable(variable: re.Match[str]) -> str:
    if variable[1] not in os.environ:
        raise UserError(
            f"{variable[0]}: there is no such environment variable; set it, or write its value"
        )
    return os.environ[variable[1]]


class ExperimentParser(LightningArgumentParser):
    """Lightning's parser, whose errors are one line, and which takes no abbreviated flags."""

    def __init__(self, **kwargs: Any) -> None:
        # jsonargparse makes further ones, as for --model.help, which have no usage of their own
        usage = kwargs.pop("usage", write_usage("COMMAND"))
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, usage=usage, **kwargs)
        self.argv = Flags()

    def parse_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None, **kwargs: Any
    ) -> Namespace:
        """Parse flags; arguments that only the call of a function can tell go to its
        ``dict_kwargs``, as those of ``timm.create_model``.
        """
        args = [name_dict_kwargs(arg, namespace) for arg in args] if namespace else args
        return super().parse_args(args, namespace, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:  # a parser with which jsonargparse tries a value
            super().error(message, ex)
        from litlab.cli.parse_errors import explain

        raise UserError(explain(message, self)) from ex


def name_dict_kwargs(flag: str, config: Namespace) -> str:
    """Return a flag such as ``--network.bn_eps=0.01`` with ``dict_kwargs`` in it, where the
    function of the block, here the network's, takes the argument without naming it.
    """
    key, _, name = (
        flag.partition("=")[0].removeprefix("--").replace("init_args.", "").partition(".")
    )
    block = config.get(key)
    if not name or "." in name or not isinstance(block, Namespace) or "class_path" not in block:
        return flag
    from litlab.cli.parse_errors import list_arguments, takes_others

    path = block.class_path
    if name in ("class_path", *list_arguments(path)) or not takes_others(path):
        return flag
    return f"--{key}.dict_kwargs.{name}={flag.partition('=')[2]}"


class Command(LightningCLI):
    """A command line, parsed. Nothing is built yet: `build` does that for one section after the
    other.

    Args:
        argv: The verb and its flags; runs may be named as people name them.

    Attributes:
        config: The settings by section.
        line: The command line, read: its run, and the flags in which runs and bases are flags.
    """

    config: Namespace

    def __init__(self, argv: list[str]) -> None:
        line = self.line = read_command_line(argv)
        self.verb = line.verb

        # What holds for the whole process: types and loaders, what may be imported, the classes
        # that short names lead to. What nothing names is not imported; --help describes it all.
        prepare_jsonargparse()
        self.allowed = restrict_imports(line.is_foreign, line.flags.find("--allow_modules"))
        texts = [*line.flags, *line.flags.read_texts()]
        self.words: Container[str] = set(re.findall(r"\w+", " ".join(texts)))
        if any(flag.endswith("help") for flag, _ in line.flags.list_pairs()):
            import_all_classes()
            self.words = SECTIONS
        else:
            import_classes(texts)

        # The parser, and what it makes of the flags: see `parse_arguments`.
        super().__init__(
            LightningModule,
            LightningDataModule,
            trainer_class=ExperimentTrainer,
            subclass_mode_model=True,
            subclass_mode_data=True,
            parser_class=ExperimentParser,
            parser_kwargs={
                "usage": write_usage(self.verb),
                "parser_mode": "yaml" if line.is_foreign else "yaml with variables",
            },
            seed_everything_default=0,
            auto_configure_optimizers=False,
            run=False,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        add_arguments(parser, self.verb, self.words)
        parser.description = FIRST_SCREEN[self.verb]

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        parser.argv = self.line.flags  # pyright: ignore[reportAttributeAccessIssue]
        self.config = parser.parse_args(self.line.flags)

        # What the types can't say
        for key in ONLY_FLAGS:
            if self.config.get(key) and not self.line.flags.has(f"--{key}"):
                raise UserError(f"{key}: a config file can't set it; give it as the flag --{key}")
        for key in NEEDED:
            if self.config[key] is None:
                raise UserError(f"{key}: null is not valid; give it a value, or leave it out")
        if not isinstance(self.config.trainer, Namespace):  # jsonargparse (4.53) takes anything
            raise UserError("trainer: it must hold settings; write KEY: VALUE, or leave it out")
        if not 0 <= self.config.seed_everything < 2**32:
            raise UserError(
                f"seed_everything: {self.config.seed_everything} is not valid; give 0 "
                f"to {2**32 - 1}"
            )
        if self.line.is_foreign:
            check_config(self.config, self.allowed)

        settings = self.config.data.get("init_args", Namespace())
        if "seed" in settings and settings.seed is None:
            # One seed for weights, order and augmentation
            settings.seed = int(self.config.seed_everything)

    def instantiate_classes(self) -> None:
        """Leave building to `litlab.cli.fit`, which says in which order it happens."""

    def _set_seed(self) -> None:
        """Leave seeding to it, too."""

    def build(self, *keys: str, config: Namespace | None = None) -> Namespace:
        """Build the classes of some sections.

        Args:
            keys: The sections, such as ``data``.
            config: The settings; left out, those of the command.

        Raises:
            Exception: What a class raises, with a note that says which section was being built.
        """
        config = config or self.config
        # Lightning's own dump would check every setting once more
        self.config_dump = self.settings()
        with building(keys[0]), load_weights_only() if self.line.is_foreign else nullcontext():
            built: Any = self.parser.instantiate_classes(
                Namespace({key: config[key] for key in keys}).clone()
            )
        return built

    def build_data(self) -> LightningDataModule:
        """Build the DataModule."""
        return self.build("data").data

    def build_model(self, load_pretrained: bool = True) -> LightningModule:
        """Build the model. It can be copied: no recipe for an optimizer in it holds on to the
        parser.

        Args:
            load_pretrained: Whether a network gets the weights that its config names; not where a
                checkpoint has all of them.
        """
        config = self.config.clone()
        if not load_pretrained:
            from litlab.nn.adapt import forget_weights

            forget_weights(config.get("model.init_args.network.init_args", {}))
        model = self.build("model", config=config).model
        for name, value in vars(model).items():
            setattr(model, name, plain_recipe(value))
        return model

    def fill_from_data(self, data: LightningDataModule) -> None:
        """Give null settings of the model, its network and metrics the data's value, such as its
        number of classes.
        """
        model = self.config.model
        for section in (model, *(model.get("init_args.metrics") or {}).values()):
            for key, value in list(section.items()):
                name = key.rpartition(".")[2]
                if value is None and is_fact(type(data), name):
                    # Only now its files are opened: a trained model needs none of this
                    refuse_other_task(imported(model.class_path), getattr(data, "facts", None))
                    section[key] = getattr(data, name)

    def settings(self, config: Namespace | None = None) -> dict[str, Any]:
        """Return the settings as plain data, without those that belong to the command alone."""
        text = self.parser.dump(
            config or self.config, format="json", skip_none=False, skip_validation=True
        )
        return {
            name: value for name, value in json.loads(text).items() if name not in OF_THE_COMMAND
        }

    def settings_of(self, file: Path) -> dict[str, Any]:
        """Return what a config file alone would set, of a run that this command has read."""
        return self.settings(self.parser.parse_args([f"--config={file}"]))


def refuse_other_task(model: Any, metadata: Any) -> None:
    """Refuse a model for another task than that of the data's target.

    Args:
        model: The class of the model, or a function that makes it.
        metadata: That of the data.
    """
    target, task = getattr(metadata, "target", None), getattr(model, "task", None)
    if target is not None and task not in (None, target.task):
        raise UserError(
            f"model: {model.__name__} is for {task}, not for {', '.join(target.columns)}; use "
            f"--model {target.model}, or set --data.task {task}"
        )
