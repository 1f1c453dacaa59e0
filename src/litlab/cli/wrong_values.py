"""What is said of a value that is not of its type: what it must be, what it is, how it is written rightly."""

import contextlib
import enum
import inspect
import math
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal, get_args, get_origin

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from litlab.cli.class_paths import is_general, made_by
from litlab.util.nearest import nearest

PLAIN = (int, float, bool, str, bytes, complex, enum.Enum, PurePath, timedelta)


def kind(hint: Any) -> Literal["plain", "list", "mapping", "class"]:
    """How values of a type are written in YAML."""
    origin = get_origin(hint) or hint
    if made_by(hint)[0] is not None:
        return "class"
    if not inspect.isclass(origin) or issubclass(origin, PLAIN) or origin is type:
        return "plain"
    if issubclass(origin, Mapping):
        return "mapping"
    if origin.__module__ in ("builtins", "collections", "collections.abc") and issubclass(origin, Iterable):
        return "list"
    return "class" if origin.__module__ not in ("builtins", "collections.abc") else "plain"


def accepts(hint: Any, value: Any) -> bool:
    """Whether the parser takes a value for a type."""
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=hint)
    except ValueError:  # a type that jsonargparse does not know, and so does not check
        return True
    with contextlib.suppress(ArgumentError, TypeError, ValueError):
        parser.parse_object({"value": value})
        return True
    return False


def wrong(key: str, node: yaml.Node, hints: list[Any]) -> str:
    """The message for a value that is of none of some types."""
    if isinstance(node, yaml.ScalarNode) and any(kind(hint) == "plain" for hint in hints):
        hints = [hint for hint in hints if kind(hint) != "class"]
    choices = [choice for hint in hints if get_origin(hint) is Literal for choice in get_args(hint)]
    text = node.value if isinstance(node, yaml.ScalarNode) else None
    names = [_name(hint) for hint in hints if get_origin(hint) is not Literal]
    if choices:
        names.append(f"one of {', '.join({str(choice): repr(choice) for choice in choices}.values())}")
    hint = _rewritten(text, hints) if text is not None else ""
    end = f": write {hint}." if hint else nearest(text or "", (str(choice) for choice in choices))
    return f"'{key}' must be {' or '.join(dict.fromkeys(names))}, not {shown(node)}{end}"


def shown(node: yaml.Node) -> str:
    """A value, as a message names it."""
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a block of settings"
    if node.tag.endswith(":null"):
        return "null"
    return repr(node.value) if len(node.value) < 100 else f"{node.value[:80]!r}..."


def a_class(cls: type) -> str:
    """A class with its article."""
    return f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}"


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if kind(hint) == "list":
        inner = [part for part in get_args(hint) if part is not Ellipsis]
        if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
            return f"a list of {len(inner)} values ({', '.join(_name(part) for part in inner)})"
        if inner and kind(inner[0]) == "class":
            return "a list of blocks (class_path and init_args)"
        return f"a list of {_name(inner[0])}" if inner else "a list"
    if kind(hint) == "mapping":
        return "keys with values"
    if kind(hint) == "class":
        cls = made_by(hint)[0] or get_origin(hint) or hint
        return f"{a_class(cls)} (class_path and init_args)" if is_general(cls) else f"the settings of {cls.__name__}"
    return getattr(hint, "__name__", None) or " ".join(str(hint).replace("typing.", "").split())


def _rewritten(text: str, hints: list[Any]) -> str:
    """How a value would be written that is meant as a number, a truth value or a list; empty if there is no telling."""
    numbers = [hint for hint in (int, float) if hint in hints]
    if bool in hints and text.lower() in ("y", "n", "1", "0", "1.0", "0.0"):
        return "true" if text.lower() in ("y", "1", "1.0") else "false"
    if numbers:
        found = text.strip()
        percent = found.endswith("%")
        found = found.removesuffix("%").strip().replace("_", "").replace(" ", "")
        if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+\.\d+", found):  # 1,234.5
            found = found.replace(",", "")
        found = found.replace(",", ".") if found.count(",") == 1 else found.replace(",", "")
        with contextlib.suppress(ValueError, OverflowError):
            value = float(found) / (100 if percent else 1)
            if not math.isfinite(value):
                return "." + found.lower().lstrip("+-") if float in numbers else ""  # as YAML writes them
            if float in numbers:
                return f"{value:g}"
            return str(int(value)) if value == int(value) else ""
    lists = [hint for hint in hints if kind(hint) == "list"]
    if text and any(kind(part) == "plain" for hint in lists for part in get_args(hint)):
        return f"[{', '.join(part.strip() for part in text.split(','))}]"
    return ""
