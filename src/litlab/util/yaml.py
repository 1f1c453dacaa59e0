"""YAML files of users: what is wrong with one is one line with its place.

A key that is there twice is refused, as YAML would drop the first one silently.
"""

import os
import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from litlab.errors import UserError, first_line
from litlab.util.text import nearest

# In C where it was built: ten times as fast
_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))$"
)


VARIABLE = re.compile(r"\$\{(\w+)\}")  # ${NAME}, of the environment


class Loader(_FASTEST):
    """YAML as jsonargparse reads it: 1e-3 is a number, a date is text."""

    # YAML 1.1 takes 1e-3, without a dot, for text, and 2026-01-01 for a date.
    yaml_implicit_resolvers: ClassVar[dict] = {
        first: [pair for pair in pairs if not pair[0].endswith((":float", ":timestamp"))]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise yaml.MarkedYAMLError(
                    problem=f"{name} is there twice", problem_mark=key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def read_mapping(
    file: Path, example: str = "trainer: {max_epochs: 3}", fill: bool = False
) -> dict[str, Any]:
    """Read a YAML file of keys and values.

    Args:
        file: The file, in UTF-8.
        example: A line that such a file could hold, for the message.
        fill: Whether variables of the environment are filled in, see `fill_variables`.

    Raises:
        UserError: If it can't be read, is not YAML, has a key twice, or holds something else.
    """
    text = read_text(file)
    text = fill_variables(text) if fill else text
    # ValueError: of a tag that does not fit, such as !!int before a word.
    try:
        content = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as error:
        if "\n<<<<<<< " in f"\n{text}":
            raise UserError(
                f"{file}: it has an unresolved merge conflict (<<<<<<<); choose one side"
            ) from error
        mark = getattr(error, "problem_mark", None)
        location = file if mark is None else f"{file}:{mark.line + 1}"
        problem = getattr(error, "problem", None) or first_line(error)
        raise UserError(
            f"{location}: not valid YAML: {problem}; correct it, or put the value in quotes"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: it contains no keys and values; write some, such as {example}")
    return content


class _Dumper(yaml.SafeDumper):
    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        has_inner = any(isinstance(item, dict | list) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=not has_inner)


# Else a text such as 1e-3 would be read as a number
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def dump_config(settings: dict[str, Any]) -> str:
    """Return a config as YAML, in the order of its keys; a list of values stands in one line."""
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def read_text(file: Path) -> str:
    """Read a text file in UTF-8, with or without a byte order mark.

    Raises:
        UserError: If it can't be read.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        others = [str(path) for path in Path("configs").rglob("*.yaml")]
        raise UserError(
            f"{file}: no such file{nearest(str(file), others, '; correct it')}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(
            f"{file}: it can't be read ({reason}); give a YAML file in UTF-8"
        ) from error


def fill_variables(text: str) -> str:
    """Return a text with the value of each variable ``${NAME}`` of the environment in it.

    Raises:
        UserError: If there is no such variable.
    """

    def read_variable(variable: re.Match[str]) -> str:
        if variable[1] not in os.environ:
            raise UserError(
                f"{variable[0]}: there is no such environment variable; set it, or write its value"
            )
        return os.environ[variable[1]]

    return VARIABLE.sub(read_variable, text)


def find_line(file: Path, key: str) -> int | None:
    """Return the line of a YAML file that sets a key such as ``model.optimizer.lr``; None if it
    does not.

    Args:
        file: The file.
        key: Dotted, without ``init_args``.
    """
    # {path: ${NAME}} is YAML only once the variable is filled in
    return _find_line(yaml.compose(VARIABLE.sub("x", read_text(file)), Loader), key)


def _find_line(node: yaml.Node | None, key: str) -> int | None:
    for inner, value in node.value if isinstance(node, yaml.MappingNode) else []:
        name = str(inner.value).rstrip("+")  # it may be dotted itself
        rest = key if name == "init_args" else key.removeprefix(f"{name}.")
        if name == key:
            return inner.start_mark.line + 1
        if name == "init_args" or rest != key:
            line = _find_line(value, rest)
            if line is not None:
                return line
    return None
