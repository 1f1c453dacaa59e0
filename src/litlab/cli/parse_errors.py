"""What the parser refuses, as one line: where it is, what is wrong, and what to do.

jsonargparse describes a mistake as an indented tree of all types that it tried. The deepest line
says most. `MISTAKES` lists what such a line may say, with a function for each kind of mistake. A
line that is not on the list, perhaps one of another version of jsonargparse, is shown as it is.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser
from lightning.pytorch import callbacks
from torch import optim

from litlab.cli.argv import Flags, is_config_file
from litlab.cli.classes import find_classes, find_imported
from litlab.cli.trust import explain_denied
from litlab.util.team import is_own, package
from litlab.util.text import nearest, some
from litlab.util.yaml import find_line

# What stands before the text of a line.
BEFORE = re.compile(
    r'(\s|- |Parser key "[^"]+":|Not of type [^:]*:'
    r"|Type .* expects a function or a callable class:)*"
)
# Lines that only frame others, or say of one of several types what its neighbours say, too.
FRAME = re.compile(
    r"Problem with given|Does not validate|Subtypes:|Errors:|Given value|Expected a path but"
    r"|Expected a <class 'NoneType|Subclass types expect|a class path \(str\)|a dict with"
)
ONE_TYPE = ("Expected a <", "Not a valid subclass")
WRONG_CLASS = "{0} is not valid; it must be a kind of {1}"
Match = re.Match[str]
BLOCK = ("class_path", "init_args", "dict_kwargs")  # the keys of a class in YAML


@dataclass
class Mistake:
    """What a message of jsonargparse says.

    Attributes:
        line: The deepest line as it is.
        text: That line without what stands before it and the value behind it.
        keys: The keys that it is in, from the outermost.
        classes: The class paths that it is in.
        types: The types that could stand there, as jsonargparse writes several; may be empty.
        value: What is set, as text; may be empty.
        parser: The parser.
    """

    line: str
    text: str
    keys: list[str]
    classes: list[str]
    types: str
    value: str
    parser: Any


def explain(message: str, parser: Any) -> str:
    """Return one line for what jsonargparse refuses.

    Args:
        message: What jsonargparse (4.52 or 4.53) says.
        parser: The parser, whose `argv` it has parsed.
    """
    # The first kind that fits; none is known for what another version says.
    mistake = read_message(message, parser)
    for pattern, explain_kind in MISTAKES:
        match = re.fullmatch(pattern, mistake.text, re.DOTALL)
        if match is None:
            continue
        if isinstance(explain_kind, str):
            text = explain_kind.format(*match.groups(), value=mistake.value)
        else:
            text = explain_kind(mistake, match)
        if text is not None:
            break
    else:
        text = mistake.line
    key = ".".join(mistake.keys)
    return ": ".join(filter(None, [find_place(key, parser.argv), key, text]))


def read_message(message: str, parser: Any) -> Mistake:
    """Find the deepest line of a message, and what it is in."""
    # The deepest of the lines that say something; of two, the first that says more than a type.
    # Two alternatives may go to other depths: the deeper one is what was meant, and failed later.
    lines = message.splitlines() or [message]
    best, number, inside = (-1, False), 0, ""
    around: list[tuple[int, str]] = []  # the lines that the next one may be in, by their depth
    value_at = sys.maxsize  # the depth of a value, which may go on in the next lines
    for at, line in enumerate(lines):
        depth = len(line) - len(line.lstrip(" -"))
        if not line or (depth >= value_at and not line.lstrip().startswith("- ")):
            continue
        value_at = depth if "value: " in line else sys.maxsize

        # What it is in has less depth; the types stand beside the errors, and belong to them.
        around = [(above, text) for above, text in around if above < depth]
        around.append((depth - line.startswith("Subtypes: ", depth), line))
        text = BEFORE.sub("", line, count=1)
        rank = (depth, not text.startswith(ONE_TYPE))
        if text and not FRAME.match(text) and rank > best:
            best, number, inside = rank, at, "\n".join(text for _, text in around)

    # What is set: the first value from there on, but not as jsonargparse has it inside
    values = re.findall(r"(?:Got|Given) value: (?!Namespace)(.*)", "\n".join(lines[number:]))
    value = "".join(values[:1]).partition(". Got value: ")[0]
    value = re.sub(r"NestedArg\(key='(.*)', val='(.*)'\)", r"\1=\2", value)  # --model.KEY=VALUE
    types = re.findall(r"Subtypes: \[(.*)\]", inside.rpartition("Parser key")[2])
    return Mistake(
        line=lines[number].strip(" -"),
        text=BEFORE.sub("", lines[number], count=1).partition(". Got value: ")[0],
        keys=re.findall(r'Parser key "([^"]+)"', inside),
        classes=re.findall(r"class_path[ =]'([^']+)'", inside),
        types="".join(types[-1:]),
        value=value,
        parser=parser,
    )


def find_place(key: str, argv: Flags) -> str:
    """Return the file and line that set a key, or what it is in; empty where a flag does.

    Args:
        key: The key, dotted.
        argv: The flags. Of several files and flags the last one counts.
    """
    while key:
        # Keys have no init_args here, and flags need none; `callbacks+` appends to a list
        for flag, value in reversed(argv.list_pairs()):
            if flag.lstrip("-").rstrip("+").replace(".init_args", "") == key:
                return ""
            line = find_line(Path(value), key) if is_config_file(flag, value) else None
            if line is not None:
                return f"{value}:{line}"
        key = key.rpartition(".")[0]  # as an item of a list has no line of its own
    return ""


# Flags


def explain_unknown_flag(mistake: Mistake, match: Match) -> str:
    word, settings = match[1], list_settings(mistake.parser)
    name = word.partition("=")[0].removeprefix("--")
    # Within a class: --model.optimiser.lr, or --data.augment.flop of a section of its arguments
    if mistake.classes:
        first = name.partition(".")[0]
        is_section = first in list_arguments(mistake.classes[-1])
        return explain_unknown_argument(mistake, name if is_section else first)
    # The nearest setting; else the nearest section; else it may be a file without its flag
    section = nearest(name.partition(".")[0], settings, "; a config file follows --config")
    return f"{word}: there is no such setting{nearest(name, settings, section)}"


def explain_missing(mistake: Mistake, match: Match) -> str:
    # Of a class, or of the command itself, which needs a model and data
    if mistake.keys:
        return f"{match[1]} is missing; add it"
    return f"{match[0]}; give --config FILE, such as --config configs/mine.yaml"


# Keys


def explain_block(mistake: Mistake, match: Match) -> str | None:
    """Explain a class in YAML that has other keys than it may have; None if this is right."""
    for block in read_blocks(mistake):
        wrong = [str(key) for key in block if key not in BLOCK]
        if wrong:
            advice = nearest(wrong[0], BLOCK, "; put it in init_args")
            return f"there is no key '{wrong[0]}' beside class_path and init_args{advice}"
        path, settings = block.get("class_path", ""), block.get("init_args") or {}
        if not isinstance(path, str):
            return f"class_path: {path} is not valid; it must be the name or path of a class"
        if not isinstance(settings, dict):
            return f"init_args: {settings} is not valid; write KEY: VALUE"
    return None


def read_blocks(mistake: Mistake) -> list[dict[str, Any]]:
    """Return all classes, as YAML has them, in what is set."""
    # jsonargparse shows values as Python writes them: {'class_path': 'A', 'init_args': {'x': None}}
    try:
        return list_blocks(ast.literal_eval(mistake.value))
    except (SyntaxError, ValueError):  # text, or the value of a flag
        return []


def list_blocks(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, dict | list):
        return []
    inside = value.values() if isinstance(value, dict) else value
    blocks = [block for item in inside for block in list_blocks(item)]
    if isinstance(value, dict) and value.keys() & {"class_path", "init_args"}:
        blocks.insert(0, value)  # the outermost first
    return blocks


def explain_unknown_key(mistake: Mistake, match: Match) -> str:
    # Of a section, such as the trainer
    group, option = match.groups()
    if not mistake.classes:
        mistake.keys += filter(None, (group, option))
        key = ".".join(mistake.keys)
        return f"there is no such key{nearest(key, list_settings(mistake.parser))}"

    # Of a class. Settings without a class_path are compared with the type that the setting has,
    # such as torch's Optimizer: then it is the class that is missing
    path, name = mistake.classes[-1], option.partition(".")[0].rstrip("+")  # appends to a list
    kind = path.rpartition(".")[2]
    if mistake.value.startswith("{") and kind not in mistake.value and not is_own(path):
        return f"it names no {kind}; give class_path and init_args"
    return explain_unknown_argument(mistake, name)


def explain_unknown_argument(mistake: Mistake, name: str) -> str:
    """Explain that a class has no such argument; a dotted name is in a section of its arguments."""
    path = mistake.classes[-1]
    mistake.keys.append(name)
    names = list_arguments(path, sections="." in name)
    otherwise = f"; it has {some(names) or 'no settings'}"
    if path in ("lightning.LightningModule", "lightning.LightningDataModule"):
        # No class was named, or only by a later flag
        otherwise = f"; give --config FILE or --{mistake.keys[0]} CLASS before it"
    if takes_others(path):  # only in YAML: see `name_dict_kwargs`
        otherwise = "; put an argument that it hands on in dict_kwargs"
    return f"{path.rpartition('.')[2]} has no '{name}'{nearest(name, names, otherwise)}"


def list_settings(parser: ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions]


def list_arguments(path: str, sections: bool = False) -> list[str]:
    """Return the arguments of a class or function, with those that it passes on; with `sections`
    also, as dotted names, what is in those that are dataclasses.
    """
    # By a parser of its own, which follows **kwargs to where they go
    target, parser = find_imported(path), ArgumentParser()
    is_class = isinstance(target, type)
    add = parser.add_class_arguments if is_class else parser.add_function_arguments
    names = add(target, fail_untyped=False)
    return list_settings(parser) if sections else names


def takes_others(path: str) -> bool:
    """Return whether a function takes arguments that only its call can tell, as
    ``timm.create_model`` does.
    """
    function = find_imported(path)
    if not inspect.isfunction(function):
        return False
    # It ends with **kwargs, and jsonargparse has found nothing that they could be
    parameters = [*inspect.signature(function).parameters.values()]
    is_open = any(last.kind is last.VAR_KEYWORD for last in parameters[-1:])
    return is_open and len(list_arguments(path)) < len(parameters)


# Classes


def explain_missing_attribute(mistake: Mistake, match: Match) -> str:
    names = nearest(match[2], dir(sys.modules[match[1]]), "; correct the path")
    return f"{match[1]} has no '{match[2]}'{names}"


def explain_unknown_class(mistake: Mistake, match: Match) -> str | None:
    flag, name = match.groups()
    if "<class 'float'>" in mistake.types:  # a number was meant, where a Tensor may stand, too
        return None

    # All classes that a short name could mean: one that is there is of the wrong kind
    libraries = (torch.nn, optim, optim.lr_scheduler, callbacks)
    names = {name for library in libraries for name in dir(library) if name[0].isupper()}
    names.update(find_classes(package()))
    if name in names:
        return f"{name} is not valid; it must be {name_types(mistake.types)}"
    otherwise = "; give its full path, or its settings as KEY: VALUE"
    return f"{flag or ''}there is no class '{name}'{nearest(name, names, otherwise)}"


def explain_failed_import(mistake: Mistake, match: Match) -> str | None:
    """Explain what a module raises where it is imported; None if this is not the mistake."""
    for block in read_blocks(mistake):
        path = block.get("class_path", "")
        module = path.rpartition(".")[0]
        if module and find_imported(path) is None:
            return f"{path} can't be imported ({match[0]}); python -c 'import {module}' shows where"
    return None


# Types


def explain_wrong_type(mistake: Mistake, match: Match) -> str:
    kinds = name_types(mistake.types or match[1])
    return f"{mistake.value} is not valid; it must be {kinds}"


def name_types(types: str) -> str:
    """Return types as people write them."""
    # <class 'int'> is int, Literal['min', 'max'] its words; modules are left out
    names = re.sub(r"<class '([^']+)'>|(?:typing\.)?Literal\[([^]]*)\]", r"\1\2", types)
    names = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", names)
    # Callable[[Iterable], Optimizer] is what its call returns: an Optimizer
    names = re.sub(r"Callable\[\[[^]]*\], (\w+)\]", r"\1", names).replace("NoneType", "null")
    names = ", ".join(dict.fromkeys(names.split(", ")))
    return f"one of {names}" if ", " in names else names


# What the deepest line may say; the line that explains it, or a function that does, or returns None
# where it is another mistake. The first that fits counts.
MISTAKES: tuple[tuple[str, str | Callable[[Mistake, Match], str | None]], ...] = (
    (r"unrecognized arguments: (\S+).*", explain_unknown_flag),
    (r"argument (\S+): expected .*", "{0}: it has no value; give one, such as {0}=VALUE"),
    (r"argument (\S+): ignored explicit.* '(.*)'", "{0}: it takes no value; leave out '={1}'"),
    (r"the following arguments are required: (.+)", explain_missing),
    (r"(?:Path is not a file|File does not exist): (.+)", "there is no file {0}; give a YAML file"),
    (
        r"Unable to load config (.+)",
        "{0} can't be read as YAML; write {{KEY: VALUE}}, with a space after each colon",
    ),
    # From here on a class in YAML may be the cause, whatever the line says.
    (r"(.*)", explain_block),
    (r"(?:Group '(.+)' does not accept o|O)ption '([^']+)'.*", explain_unknown_key),
    (r"Importing '(.+)' is not allowed.*", lambda mistake, match: explain_denied(match[1])),
    (
        r"No module named '([\w.]+)'.*",
        "there is no module {0}; install its package, or correct the path",
    ),
    (r"module '(.+)' has no attribute '(.+)'", explain_missing_attribute),
    (r"(--\S+: )?Expected a dot import path string: (.+)", explain_unknown_class),
    (r"Import path (\S+) does not correspond to a subclass of (\w+)", WRONG_CLASS),
    (r"Expected '(.+)' to be .*? (?:<class ')?(\w+)(?:'>)?\.*", WRONG_CLASS),
    (
        r"Not a valid subclass of .*",
        "{value} is not valid; give settings as KEY: VALUE, or null for none",
    ),
    (r"Expected an? (.*)", explain_wrong_type),
    # What `litlab.types` says, of a value that stands elsewhere, or before it.
    (r"is not valid; (.*)", "{value} is not valid; {0}"),
    (r"(.* is not valid; .*)", "{0}"),
    (r"(.*)", explain_failed_import),
)
