"""The modules that a user names: on a command line, and in the config files on it. Nothing heavy is imported here."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NEVER = {*sys.stdlib_module_names, "jsonargparse"}  # what is named of these is no package of the user's


def modules_named(arguments: list[str]) -> set[str]:
    """Names of the packages whose classes a command line itself names.

    Args:
        arguments: The command line. Config files that a run has left count as somebody else's.
    """
    texts = set(_values(arguments))
    for config in map(Path, values_of(arguments, "--config", "-c")):
        if not is_of_a_run(config):
            texts |= set(_texts_in(config))
    paths = {text for text in texts if "." in text and all(part.isidentifier() for part in text.split("."))}
    return {path.partition(".")[0] for path in paths if not Path(path).exists()} - NEVER


def values_of(arguments: list[str], *flags: str) -> list[str]:
    """The values of flags, for ``--a b`` and ``--a=b`` alike."""
    return [value for flag, value in _pairs(arguments) if flag in flags]


def is_of_a_run(config: Path) -> bool:
    """Whether a config is the one that a run has left in its folder."""
    beside = ("status.json", "checkpoints")
    return config.name == "config.yaml" and any((config.parent / name).exists() for name in beside)


def _values(arguments: list[str]) -> Iterator[str]:
    for flag, value in _pairs(arguments):
        if flag not in ("--config", "-c", "--allow_modules"):
            yield value


def _pairs(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for argument, following in zip(arguments, [*arguments[1:], ""][: len(arguments)], strict=True):
        flag, equals, value = argument.partition("=")
        if flag.startswith("-"):
            yield flag, value if equals else following


def _texts_in(config: Path) -> Iterator[str]:
    """All texts in a config, class paths among them; nothing for one that can't be read, which the parser reports."""
    import yaml

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for part in value.values():
                yield from walk(part)
        elif isinstance(value, list):
            for part in value:
                yield from walk(part)
        elif isinstance(value, str):
            yield value

    try:
        yield from walk(yaml.safe_load(config.read_bytes()))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        return
