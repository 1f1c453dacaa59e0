"""LightningCLI as a parser: YAML and flags become one config. Its sections are built one by one,
when they are asked for.
"""

import json
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
from litlab.cli.classes import find_imported, import_all_classes, import_classes
from litlab.cli.help import FIRST_SCREEN, HelpFormatter, write_usage
from litlab.cli.precision import ExperimentTrainer
from litlab.cli.sections import COMMAND_ONLY, SECTIONS, add_arguments
from litlab.cli.trust import check_config, load_weights_only, restrict_imports
from litlab.errors import UserError, building
from litlab.util.recipes import is_fact, plain_recipe
from litlab.util.yaml import fill_variables

# What a config can't set to null, as the code that reads it takes a value for granted.
NEEDED = (
    "trainer", "model", "data", "seed_everything", "experiment", "test_after_fit", "channels_last",
)  # fmt: skip


@cache
def prepare_jsonargparse() -> None:
    """Tell jsonargparse, and YAML, what they don't know: for all parsers of this process, once.

    What a command may import is set beside it, by `litlab.cli.trust.restrict_imports`. Nothing else
    changes a library for the whole process on the way to the parser.
    """
    # Lightning's WeightAveraging has a setting of this type, which jsonargparse (4.53) can't read.
    register_type(torch.device)
    # Members of an Enum are written as their values, which can be read back: the interval of
    # Lightning's Timer is one by default.
    yaml.SafeDumper.add_multi_representer(
        Enum, lambda dumper, member: dumper.represent_data(member.value)
    )

    load_yaml = get_loader("yaml")

    def load_setting(text: str) -> Any:
        # Of a null flag of a class within a class, such as --model.network.weights=null,
        # jsonargparse (4.53) makes the word None, which YAML reads as a text.
        return None if text == "None" else load_yaml(text)

    def load_with_variables(text: str) -> Any:
        return load_setting(fill_variables(text))

    set_loader("yaml", load_setting, (yaml.YAMLError,))
    # Not for the configs of others: a secret from the environment could become the name of a
    # logger's folder, or part of the address of a server.
    set_loader("yaml with variables", load_with_variables, (yaml.YAMLError,))


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
        """Parse flags. Arguments that a function takes without naming them, as
        ``timm.create_model`` does, go to its ``dict_kwargs``.
        """
        args = [name_dict_kwargs(arg, namespace) for arg in args] if namespace else args
        return super().parse_args(args, namespace, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:  # a parser with which jsonargparse tries a value
            # It wants to know that the value does not fit, and goes on with the next type
            super().error(message, ex)
        # Imported here: most commands have no mistake to explain
        from litlab.cli.parse_errors import explain

        raise UserError(explain(message, self)) from ex


def name_dict_kwargs(flag: str, config: Namespace) -> str:
    """Return a flag such as ``--network.bn_eps=0.01`` with ``dict_kwargs`` in it, where the
    function of the block, here the network's, takes the argument without naming it.
    """
    # --network.bn_eps and --network.init_args.bn_eps mean the same
    option, _, value = flag.partition("=")
    key, _, name = option.removeprefix("--").replace("init_args.", "").partition(".")
    block = config.get(key)
    if not name or "." in name or not isinstance(block, Namespace) or "class_path" not in block:
        return flag
    from litlab.cli.parse_errors import list_arguments, takes_others

    path = block.class_path
    if name in ("class_path", *list_arguments(path)) or not takes_others(path):
        return flag
    return f"--{key}.dict_kwargs.{name}={value}"


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

        # What holds for the whole process: how values are read, and what may be imported
        prepare_jsonargparse()
        self.allowed = restrict_imports(line.is_foreign, line.flags.find("--allow_modules"))

        # The classes that short names lead to. Importing all of them takes seconds, so only those
        # that configs and flags name are; --help describes them all
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
            # A config names any subclass, by class_path
            subclass_mode_model=True,
            subclass_mode_data=True,
            parser_class=ExperimentParser,
            parser_kwargs={
                "usage": write_usage(self.verb),
                "parser_mode": "yaml" if line.is_foreign else "yaml with variables",
            },
            seed_everything_default=0,
            auto_configure_optimizers=False,  # optimizers are settings of the model
            run=False,  # no subcommands: the verb is read already
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        add_arguments(parser, self.verb, self.words)
        parser.description = FIRST_SCREEN[self.verb]

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # Messages look there for the file or flag that has set a key
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
        if not 0 <= self.config.seed_everything < 2**32:  # numpy takes no other seeds
            raise UserError(
                f"seed_everything: {self.config.seed_everything} is not valid; give 0 "
                f"to {2**32 - 1}"
            )

        # Parsing has imported classes, but called none: this is the last moment to refuse one
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
        # Lightning keeps it as hyper_parameters; its own dump would check every setting once more
        self.config_dump = self.get_settings()
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
        # The run's config still names the pretrained weights, so that it can be repeated
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
                name = key.rpartition(".")[2]  # of init_args.network.init_args.num_classes
                if value is None and is_fact(type(data), name):
                    # This opens the data's files. The config of a trained model has no such null
                    refuse_other_task(find_imported(model.class_path), getattr(data, "facts", None))
                    section[key] = getattr(data, name)

    def get_settings(self, config: Namespace | None = None) -> dict[str, Any]:
        """Return the settings as plain data, without those that belong to the command alone."""
        # By way of JSON, as the dump knows how each type is written. Parsing has checked it already
        text = self.parser.dump(
            config or self.config, format="json", skip_none=False, skip_validation=True
        )
        return {name: value for name, value in json.loads(text).items() if name not in COMMAND_ONLY}

    def read_settings(self, file: Path) -> dict[str, Any]:
        """Return what a config file alone would set, of a run that this command has read."""
        return self.get_settings(self.parser.parse_args([f"--config={file}"]))


def refuse_other_task(model: Any, metadata: Any) -> None:
    """Refuse a model that is for another task than the target in the data.

    Args:
        model: The class of the model, or a function that makes it.
        metadata: That of the data.
    """
    # Data and models of a team's own need not say a task: then there is nothing to compare
    target, task = getattr(metadata, "target", None), getattr(model, "task", None)
    if target is not None and task not in (None, target.task):
        raise UserError(
            f"model: {model.__name__} is for {task}, not for {', '.join(target.columns)}; use "
            f"--model {target.model}, or set --data.task {task}"
        )
