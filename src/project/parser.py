"""A parser whose errors are one line: the file or flag, the key, what is wrong, the nearest valid name.

jsonargparse describes a problem as a tree of every type that it tried, ten to forty lines for one misspelt word. The
line that the user needs is the innermost one, and its key is spread over the lines above it; both are gathered here.
"""

import contextlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningArgumentParser
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from project.trust import denied

NAMED_BY_CLASS = (LightningModule, LightningDataModule, Callback, Optimizer, LRScheduler)


class ProjectParser(LightningArgumentParser):
    """LightningArgumentParser without abbreviated flags and with errors of one line, exit code 2."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)
        self._started_in = Path.cwd()
        self.arguments = sys.argv[1:]  # what is parsed, from the verb on

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Prints one line and exits with 2; parsers that others call for a try raise as before."""
        if not self.exit_on_error:
            super().error(message, ex)
        parser = getattr(ex, "subcommand_parser", None) or self
        with contextlib.chdir(self._started_in):  # jsonargparse reads a config from inside the config's folder
            sys.stderr.write(f"error: {explain(message, _keys(parser), self.arguments)}\n")
        sys.exit(2)


def explain(message: str, keys: Iterable[str], arguments: list[str]) -> str:
    """One line for one of jsonargparse's messages.

    Args:
        message: What jsonargparse says.
        keys: Every valid key of the verb, such as trainer.max_epochs.
        arguments: The command line, from the verb on.

    Returns:
        Where it is, what is wrong and what to do, without a line break.
    """
    files = [Path(value) for flag, value in _flags(arguments) if flag in ("--config", "-c") and value]
    for file in files:
        if problem := _unreadable(file):
            return problem
    cause = _cause(message, keys, arguments[0] if arguments else "fit")
    if cause is None:
        return " ".join(message.split())
    key, word, text = cause
    return f"{_place(key, word, files, arguments)}{text}"


def _cause(message: str, keys: Iterable[str], verb: str) -> tuple[str, str, str] | None:
    """The key, the word that is wrong and the innermost reason; None for a message of an unknown form."""
    required = re.match(r"the following arguments are required: (.*)", message)
    if required:
        missing = [key.split(".", 1)[-1] for key in required[1].split(", ")]
        give = (
            "--config FILE, for example --config configs/cifar.yaml" if verb == "fit" else "--run RUN, for example last"
        )
        return "", "", f"{' and '.join(missing)} missing: give {give}."
    if found := re.search(r"does not accept option '([^']+)'|unrecognized arguments: (?:--)?([^\s=]+)", message):
        key = found[1] or found[2]
        return key, key.split(".")[-1], f"there is no key '{key}'{_nearest(key, _siblings(key, keys))}"

    # First of all: what follows looks for nearer names in modules, which would import them.
    if found := re.search(r"Importing '([^']+)' is not allowed, denied by the '([^']+)' entry", message):
        key = ".".join(re.findall(r'Parser key "([^"]+)":', message[: found.start()]))
        return key, found[1], denied(found[1], everything=found[2] == "*")
    path: list[str] = []  # keys from the outside in
    class_path = ""
    lines = message.splitlines()
    for number, line in enumerate(lines):
        if found := re.search(r'Parser key "([^"]+)":', line):
            path.append(found[1])
        if found := re.search(
            r"Problem with given class_path '([^']+)'|Got value: Namespace\(class_path='([^']+)'", line
        ):
            class_path = found[1] or found[2]
        key = ".".join(path)
        if found := re.search(r"Option '([^']+)' is not accepted", line):
            option = found[1].removeprefix("init_args.").split(".")[0]
            hint = _nearest(option, _parameters(class_path))
            return f"{key}.{option}", option, f"{class_path.rsplit('.')[-1]} has no '{option}'{hint}"
        if found := re.search(r"module '([^']+)' has no attribute '([^']+)'", line):
            return (
                key,
                found[2],
                f"{found[1]} has no '{found[2]}'{_nearest(found[2], dir(importlib.import_module(found[1])))}",
            )
        if found := re.search(r"(No module named '[^']+'|Multiple subclasses with name.*)", line):
            return key, "", f"{found[1].rstrip('.')}."
        if found := re.search(r"the following arguments are required: ([^\s,]+)", line):
            return f"{key}.{found[1]}", "", f"{class_path.rsplit('.')[-1]} needs '{found[1]}'."
        if found := re.search(r"Expected a typing.Literal\[(.*)\]\. Got value: (.*)", line):
            hint = _nearest(found[2], _quoted(found[1]))
            return key, found[2], f"'{key}' must be one of {found[1]}, not {found[2]!r}{hint}"
        if "Expected a" in line:
            return _wrong_value(key, lines[number:])
    if found := re.search(r"File does not exist: '?([^']+)'?", message):
        return "", "", f"{found[1]}: no such file."
    return None


def _wrong_value(key: str, lines: list[str]) -> tuple[str, str, str]:
    """What a value should have been, from the list of types that were tried."""
    block = []
    for line in lines:
        block.append(line)
        if "Given value:" in line:
            break
    text = "\n".join(block)
    types = [name for name in re.findall(r"Expected a <class '(\w+)'>", text) if name != "NoneType"]
    given = re.search(r"Given value: (.*)", block[-1])
    value = re.sub(r"\. Got value: .*", "", given[1]) if given else "?"
    if nested := re.fullmatch(r"NestedArg\(key='([^']*)', val='(.*)'\)", value):
        key = key if key.endswith(nested[1]) else f"{key}.{nested[1]}"
        value = nested[2]
    if choices := re.search(r"Expected a typing.Literal\[([^\]]*)\]", text):
        return key, value, f"'{key}' must be one of {choices[1]}, not {value!r}{_nearest(value, _quoted(choices[1]))}"
    if "Expected a path" in text and not {"int", "float", "bool"} & set(types):  # a class is looked for as a file too
        return key, value, _not_importable(value)
    if types:
        return key, value, f"'{key}' must be {' or '.join(types)}, not {value!r}."
    if name := re.search(r"Expected a dot import path string: (\S+)", text):
        known = {cls.__name__ for base in NAMED_BY_CLASS for cls in _subclasses(base)}
        return key, name[1], f"there is no class '{name[1]}'{_nearest(name[1], known)}"
    expected = re.search(r"Expected an? ([^.\n]+)", text)
    return key, value, f"'{key}' must be {expected[1] if expected else 'of another type'}, not {value!r}."


def _not_importable(path: str) -> str:
    """Why a class path leads nowhere."""
    module, _, name = path.rpartition(".")
    if not module:
        return f"'{path}' is not found by its name alone: give its full path, such as project.networks.VGG."
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return f"'{path}': there is no module '{error.name}'."
    if hasattr(found, name):
        return f"'{path}' is not of the class that is needed here."
    return f"{module} has no '{name}'{_nearest(name, dir(found))}"


def _place(key: str, word: str, files: list[Path], arguments: list[str]) -> str:
    """``--flag: `` or ``file.yaml:line: ``, where the wrong word, or its key, was set; the later one wins."""
    for flag, _ in reversed(_flags(arguments)):
        if key and flag.removeprefix("--") == key:
            return f"{flag}: "
    names = [name for name in key.split(".") if name and name not in ("class_path", "init_args")]
    patterns = [rf"(?<![\w]){re.escape(word)}(?![\w])"] if word else []
    patterns += [rf"(^|[\s{{,]){re.escape(name)}\+?\s*:" for name in reversed(names)]
    for pattern in patterns:
        for file in reversed(files):
            for number, line in enumerate(file.read_text().splitlines(), start=1):
                if re.search(pattern, line.split("#")[0]):
                    return f"{file}:{number}: "
    return ""


def _unreadable(file: Path) -> str | None:
    """What keeps a config file from being read as a mapping; None if nothing does."""
    if file.is_dir():
        return f"--config {file} is a folder: give a YAML file."
    if not file.is_file():
        others = sorted(str(p) for p in Path("configs").rglob("*.yaml"))
        return f"--config {file}: no such file{_nearest(str(file), others)}"
    try:
        content = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else str(file)
        return f"{place}: not valid YAML: {getattr(error, 'problem', None) or 'unreadable'}."
    except UnicodeDecodeError:
        return f"{file}: not a text file in UTF-8."
    if not isinstance(content, dict):
        return (
            f"{file}: must hold keys and values, such as 'trainer: {{max_epochs: 3}}', not a {type(content).__name__}."
        )
    return None


def _nearest(name: str, names: Iterable[str]) -> str:
    found = get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f": did you mean '{found[0]}'?" if found else "."


def _siblings(key: str, keys: Iterable[str]) -> set[str]:
    """Valid keys of the same depth as a wrong one, whole sections included."""
    depth = key.count(".") + 1
    return {".".join(k.split(".")[:depth]) for k in keys} | {k.split(".")[0] for k in keys}


def _parameters(class_path: str) -> set[str]:
    """Names of a class' or function's parameters, those of its base classes included."""
    module, _, name = class_path.rpartition(".")
    target = getattr(importlib.import_module(module), name)
    functions = [c.__init__ for c in target.__mro__] if inspect.isclass(target) else [target]
    return {p for function in functions for p in inspect.signature(function).parameters} - {"self", "args", "kwargs"}


def _subclasses(base: type) -> set[type]:
    return {base} | {found for child in base.__subclasses__() for found in _subclasses(child)}


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']+)'", text)


def _flags(arguments: list[str]) -> list[tuple[str, str | None]]:
    """(flag, value) pairs of a command line, for ``--a b`` and ``--a=b`` alike."""
    pairs: list[tuple[str, str | None]] = []
    for position, argument in enumerate(arguments):
        if argument.startswith("-"):
            flag, equals, value = argument.partition("=")
            following = arguments[position + 1] if position + 1 < len(arguments) else None
            pairs.append((flag, value if equals else following))
    return pairs


def _keys(parser: LightningArgumentParser) -> set[str]:
    keys = set()
    for action in parser._actions:
        keys.add(action.dest)
        for subparser in (getattr(action, "choices", None) or {}).values() if action.dest == "subcommand" else ():
            keys |= _keys(subparser)
    return keys
