"""The modules that a user names: on a command line, and in the config files on it. Nothing heavy is imported here."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NEVER = {*sys.stdlib_module_names, "jsonargparse"}  # what is named of these is not a package of the user's


def modules_named(arguments: list[str]) -> set[str]:
    """Names of the packages whose classes a command line itself names.

    Args:
        arguments: The command line. Config files that a run has left count as somebody else's.
    """
    texts: set[str] = set()
    for flag, value in _pairs(arguments):
        if flag not in ("--config", "-c"):
            texts |= set() if flag == "--allow_modules" else set(_texts_in(value))  # a block, too, as YAML
        elif not is_of_a_run(Path(value)):
            with contextlib.suppress(OSError):  # the parser reports it
                texts |= set(_texts_in(Path(value).read_bytes()))
    paths = {text for text in texts if "." in text and all(part.isidentifier() for part in text.split("."))}
    return {path.partition(".")[0] for path in paths if not Path(path).exists()} - NEVER


def values_of(arguments: list[str], *flags: str) -> list[str]:
    """The values of flags, for ``--a b`` and ``--a=b`` alike."""
    return [value for flag, value in _pairs(arguments) if flag in flags]


def is_of_a_run(config: Path) -> bool:
    """Whether a config is the one that a run has left in its folder."""
    beside = ("status.json", "checkpoints")
    return config.name == "config.yaml" and any((config.parent / name).exists() for name in beside)


def _pairs(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for argument, following in zip(arguments, [*arguments[1:], ""][: len(arguments)], strict=True):
        flag, equals, value = argument.partition("=")
        if flag.startswith("-"):
            yield flag, value if equals else following


def _texts_in(content: str | bytes) -> Iterator[str]:
    """All texts in YAML, class paths among them; nothing where it can't be read, which the parser reports."""
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
        yield from walk(yaml.safe_load(content))
    except (yaml.YAMLError, ValueError, RecursionError):
        return
