"""A parser whose errors are one line: the file or flag, the key, what is wrong, the nearest valid name."""

import contextlib
import os
import re
import sys
import warnings
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import jsonargparse
import yaml
from jsonargparse import Namespace
from jsonargparse.typing import Path_fr
from lightning.pytorch.cli import LightningArgumentParser

from litlab.cli.bases import is_file_name, with_bases, without_base
from litlab.cli.diagnosis import Diagnosis
from litlab.cli.help import HelpFormatter, arrange
from litlab.cli.hints import not_set, parser_of, types_of
from litlab.cli.named_modules import flags, is_of_a_run
from litlab.cli.trust import denied
from litlab.errors import UserError
from litlab.util.renamed import use_new_names
from litlab.util.team import typed
from litlab.util.yaml_files import check, flat, nodes, read_text

_load = jsonargparse.get_loader("yaml")


def _load_checked(text: str) -> Any:
    """Load the YAML of a config, a part of one or a flag, but not what can only be a mistake."""
    try:
        nodes(text, "")
    except UserError as error:  # `explain` then finds out where it is
        raise yaml.YAMLError(str(error)) from None
    return _load(text)


jsonargparse.set_loader("yaml", _load_checked, (yaml.YAMLError,))
# Lines of jsonargparse's messages that say nothing.
OUTER = ("Problem with given class_path", "Does not validate", "Subtypes:", "Errors:", "Given value")
UNWRITTEN = "Unable to serialize instance "
# The default of Timer's interval, a string for everyone else.
yaml.SafeDumper.add_multi_representer(Enum, lambda dumper, member: dumper.represent_data(member.value))


class ExperimentParser(LightningArgumentParser):
    """LightningArgumentParser without abbreviated flags, whose errors are a `UserError` of one line."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("usage", f"{typed(*sys.argv[1:2])} [--config FILE ...] [--key value ...]")
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, **kwargs)
        self.arguments = sys.argv[1:]  # what is parsed, from the verb on
        self.names = {"-": "standard input"}  # of config files that the user does not know by their path
        self.texts: dict[str, str] = {}  # of the config files that were read
        self._reading = ""  # the name of the config that is being parsed
        self._started_in = Path.cwd()

    def parse_args(self, args: Any = None, *further: Any, **kwargs: Any) -> Namespace:  # type: ignore[override]
        """Parse a command line with the bases of its configs, and refuse null where a setting needs a value."""
        if self is not self.root:  # it parses what follows the verb
            args = with_bases(args)
        config = super().parse_args(args, *further, **kwargs)
        if (verb := config.get("subcommand")) and kwargs.get("defaults", True):
            known = types_of(parser_of(self, verb))
            del known["config"]  # null where there are only flags
            for key in not_set(config[verb], known):
                self.error(f"{key}: null is not valid; give it a value")
        return config

    def parse_path(self, path: Any, *further: Any, **kwargs: Any) -> Namespace:
        """Parse a config file, in any of the usual encodings, without its bases: `with_bases` has put them in front."""
        name, texts = str(path), self.root.texts
        if name == "-":
            return self.parse_string(texts.setdefault(name, sys.stdin.read()), name, *further, **kwargs)
        text = texts[name] = read_text(Path(name))
        root = check(text, name)
        is_saved = is_of_a_run(Path(name)) or name in self.root.names
        renamed = use_new_names(root, "" if is_saved else name)
        if (rest := without_base(root)) is not root or renamed:
            text = yaml.serialize(rest)
        with Path_fr(name).relative_path_context():  # pyright: ignore[reportCallIssue] - it is a class
            return self.parse_string(text, name, *further, **kwargs)

    def parse_string(self, content: str, path: Any = "", *further: Any, **kwargs: Any) -> Namespace:
        """Parse a config, but not one within it: jsonargparse takes it under ``config``, and trust would not know."""
        if self._reading:
            raise UserError(f"{self._reading}: config: there is no such key; did you mean 'base'?")
        self._reading = self.root.names.get(path, path) or "--config"
        try:
            return super().parse_string(content, path, *further, **kwargs)
        finally:
            self._reading = ""

    @property
    def root(self) -> "ExperimentParser":
        """The parser of the whole command line, of which this one may be that of a verb."""
        above = getattr(self, "parent_parser", None)
        return above.root if isinstance(above, ExperimentParser) else self

    def dump(self, *args: Any, **kwargs: Any) -> str:
        """Return the config as text.

        jsonargparse (4.53) has no text for a string where a function could be named, or for a default such as a
        device, and writes that it can't. What such values print as is what they are given as.
        """
        # Lightning asks for all of it before it builds the data, and again before the model: it was parsed just now.
        # The text that the run keeps is validated.
        kwargs.setdefault("skip_validation", kwargs.get("skip_link_targets") is False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", rf"\s*{UNWRITTEN}(?!<)")
            return re.sub(f"{UNWRITTEN}(?!<)", "", super().dump(*args, **kwargs))

    def format_help(self, *further: Any, **kwargs: Any) -> str:
        """Return the help: of a verb with what is used most first, of a class as jsonargparse has it."""
        if self is not self.root:
            arrange(self, self.root.arguments[0])
        return super().format_help(*further, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the `UserError`. Parsers that jsonargparse itself tries values with raise as before."""
        if not self.exit_on_error:
            super().error(message, ex)
        with contextlib.chdir(self.root._started_in):  # a config is parsed from inside its folder
            raise UserError(flat(explain(message, self.root))) from None  # what came before says less


def explain(message: str, parser: ExperimentParser) -> str:
    """Return one line for what jsonargparse refuses: where it is, what is wrong and what to do.

    Args:
        message: What jsonargparse says.
        parser: The parser of the whole command line.
    """
    verb, *rest = parser.arguments
    given = flags(with_bases(rest))
    if "expected one argument" in message:
        return _without_value(message, given)
    if found := re.match(r"argument (\S+): ignored explicit argument", message):
        return f"{found[1]}: it takes no value; remove the value"
    if (found := re.match(r"unrecognized arguments: ([^\s]+)", message)) and not found[1].startswith("--"):
        return _stray(found[1])
    diagnosis = Diagnosis(parser_of(parser, verb))
    try:
        for flag, value in given:
            if flag in ("--config", "-c"):
                diagnosis.file(*_config(value, parser))
            elif flag not in ("--help", "--print_config"):
                diagnosis.flag(flag.removesuffix(".help"), value)
        diagnosis.complete()
    except UserError as mistake:
        return str(mistake)
    if required := re.match(r"the following arguments are required: (.*)", message):
        missing = " and ".join(key.split(".", 1)[-1] for key in required[1].split(", "))
        example = "--config FILE, such as --config configs/mine.yaml" if verb == "fit" else "--run RUN, such as last"
        return f"{missing}: not set; give {example}"
    return _innermost(message)


def _without_value(message: str, given: list[tuple[str, str | None]]) -> str:
    """Return what to do about a flag without a value, or with one that begins with a dash like another flag."""
    for flag, value in given:
        if value is None and flag != "--check":
            return f"{flag}: no value given; write {flag} VALUE"
    named = re.search(r"argument (\S+):", message)
    for flag, value in given:
        if named and flag in named[1].split("/") and value:
            return f"{flag}: the value begins with a dash; write {flag}={value}"
    return message


def _stray(word: str) -> str:
    """Return what to do about a word that is neither a flag nor the value of one."""
    if word.startswith("-"):
        return f"{word}: flags begin with two dashes; write -{word}"
    if "=" in word:
        return f"{word}: flags begin with two dashes; write --{word}"
    if word.endswith((".yaml", ".yml", ".json")) or os.path.isfile(word):
        return f"{word}: a config needs --config; write --config {word}"
    return f"{word}: it follows no flag that takes a value; remove it"


def _config(value: str | None, parser: ExperimentParser) -> tuple[str, yaml.Node | None]:
    """Return the name of what ``--config`` gives, a file or YAML itself, and its nodes without the base of a file."""
    if not value:
        raise UserError("--config: no value given; write --config FILE")
    if not is_file_name(value):
        name, text = ("--config", value) if value != "-" else (parser.names[value], parser.texts[value])
        return name, check(text, name)
    name = parser.names.get(value, value)
    root = check(parser.texts.get(value) or read_text(Path(value)), name)
    use_new_names(root)
    return name, without_base(root)


def _innermost(message: str) -> str:
    """Return the innermost line of one of jsonargparse's messages."""
    keys = ".".join(re.findall(r'Parser key "([^"]+)"', message))
    if found := re.search(r"Importing '([^']+)' is not allowed, denied by the '([^']+)' entry", message):
        return f"{keys}: {denied(found[1], everything=found[2] == '*')}"
    message = re.sub(r'Parser key "[^"]+":?', "", message)
    lines = [line.strip(" -") for line in message.splitlines() if line.strip(" -")]
    text = next((line for line in lines if not line.startswith(OUTER)), lines[0])
    return f"{keys}: {text}"[:300] if keys else text[:300]
