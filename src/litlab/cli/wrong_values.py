"""What a message says of a value of the wrong type or out of bounds: what it is, what it must be, how to write it."""

import contextlib
import math
import re
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

import yaml

from litlab.cli.class_paths import a_class, is_general
from litlab.cli.hints import accepts, kind, made_by
from litlab.types import base_of, bounds_of
from litlab.util.nearest import nearest


def wrong(node: yaml.Node, hints: list[Any]) -> str:
    """Return the message for a value that none of some types takes."""
    is_scalar = isinstance(node, yaml.ScalarNode)
    if is_scalar and any(kind(hint) == "plain" for hint in hints):
        hints = [hint for hint in hints if kind(hint) != "class"]
    choices = [choice for hint in hints if get_origin(hint) is Literal for choice in get_args(hint)]
    names = [_name(hint, node) for hint in hints if get_origin(hint) is not Literal]
    if choices:
        names.append(f"one of {', '.join({str(choice): repr(choice) for choice in choices}.values())}")
    bases = [base_of(hint) for hint in hints]
    is_number = any(_is_of(base, node) for base in bases if base in (int, float))
    rewritten = _rewritten(node.value, bases) if is_scalar and not is_number else ""
    end = f", such as {rewritten}" if rewritten else nearest(node.value if is_scalar else "", map(str, choices))
    return f"{shown(node)} is not valid; it must be {' or '.join(dict.fromkeys(names))}{end}"


def shown(node: yaml.Node) -> str:
    """Return a value as messages name it."""
    if isinstance(node, yaml.SequenceNode):
        plain = len(node.value) < 10 and all(isinstance(item, yaml.ScalarNode) for item in node.value)
        return f"[{', '.join(shown(item) for item in node.value)}]" if plain else "a list"
    if isinstance(node, yaml.MappingNode):
        return "a block of settings"
    if not node.tag.endswith(":str"):
        return "null" if node.tag.endswith(":null") else node.value
    return repr(node.value) if len(node.value) < 100 else f"{node.value[:80]!r}..."


def _name(hint: Any, node: yaml.Node) -> str:
    """Return what a value of a type is called: of a number with bounds these alone, where it is only out of them."""
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in parts)
    if kind(hint) == "list":
        if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
            return f"a list of {len(parts)} values ({', '.join(_name(part, node) for part in parts)})"
        if parts and kind(parts[0]) == "class":
            return "a list of blocks" + (
                " (class_path and init_args)" if not is_dataclass(parts[0]) else " of settings"
            )
        return f"a list of {_name(parts[0], node)}" if parts else "a list"
    if kind(hint) == "mapping":
        return "keys with values"
    if kind(hint) == "class":
        cls = made_by(hint)[0] or get_origin(hint) or hint
        return f"{a_class(cls)} (class_path and init_args)" if is_general(cls) else f"the settings of {cls.__name__}"
    if (bounds := bounds_of(hint)) and isinstance(node, yaml.ScalarNode):
        return str(bounds) if _is_of(base_of(hint), node) else base_of(hint).__name__
    return getattr(hint, "__name__", None) or " ".join(str(hint).replace("typing.", "").split())


def _is_of(base: type, node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null") and accepts(base, node.value)


def _rewritten(text: str, hints: list[Any]) -> str:
    """Return how to write what is meant as a number, a truth value or a list; empty where nobody can tell."""
    if bool in hints and text.lower() in ("y", "n", "1", "0", "1.0", "0.0"):
        return "true" if text.lower() in ("y", "1", "1.0") else "false"
    if int in hints or float in hints:
        found = text.strip()
        percent = found.endswith("%")
        found = found.removesuffix("%").strip().replace("_", "").replace(" ", "")
        if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+\.\d+", found):  # 1,234.5
            found = found.replace(",", "")
        found = found.replace(",", ".") if found.count(",") == 1 else found.replace(",", "")
        with contextlib.suppress(ValueError, OverflowError):
            value = float(found) / (100 if percent else 1)
            if not math.isfinite(value):
                return "." + found.lower().lstrip("+-") if float in hints else ""  # as YAML writes them
            if float in hints:
                return f"{value:g}"
            return str(int(value)) if value == int(value) else ""
    if text and any(kind(part) == "plain" for hint in hints if kind(hint) == "list" for part in get_args(hint)):
        return f"[{', '.join(part.strip() for part in text.split(','))}]"
    return ""
