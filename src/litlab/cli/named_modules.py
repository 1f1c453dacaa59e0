"""The flags of a command line, and the modules that its user names there. Nothing heavy is imported here."""

import contextlib
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

NEVER = {*sys.stdlib_module_names, "jsonargparse"}  # what is named of these is not a package of the user's


def flags(arguments: list[str]) -> list[tuple[str, str | None]]:
    """Return flags and values of a command line, of ``--a b`` and ``--a=b`` alike; None where no value follows."""
    pairs = (flag_of(argument, following) for argument, following in pairwise([*arguments, "--"]))
    return [(flag, value) for flag, value in pairs if flag]


def flag_of(argument: str, following: str) -> tuple[str, str | None]:
    """Return the flag that an argument is, "" for none, and its value, which may be the argument that follows."""
    if argument.startswith("-c") and argument != "-c":  # -cmine.yaml, -c=mine.yaml
        return "-c", argument[2:].removeprefix("=")
    if not argument.startswith("--") and argument != "-c":
        return "", None
    flag, equals, value = argument.partition("=")
    return flag, value if equals else None if following.startswith("--") else following


def values_of(arguments: list[str], *names: str) -> list[str]:
    """Return the values that some flags are given."""
    return [value for flag, value in flags(arguments) if flag in names and value is not None]


def modules_named(arguments: list[str]) -> set[str]:
    """Return the packages whose classes a command line itself names.

    Args:
        arguments: The command line. Config files that a run has left count as somebody else's.
    """
    texts: set[str] = set()
    for flag, value in flags(arguments):
        if flag not in ("--config", "-c"):
            texts |= set() if flag == "--allow_modules" else set(_texts_in(value or ""))
        elif value and not is_of_a_run(Path(value)):
            with contextlib.suppress(OSError):  # the parser reports it
                texts |= set(_texts_in(Path(value).read_bytes()))
    paths = {text for text in texts if "." in text and all(part.isidentifier() for part in text.split("."))}
    return {path.partition(".")[0] for path in paths if not Path(path).exists()} - NEVER


def is_of_a_run(config: Path) -> bool:
    """Return whether a config is the one that a run has left in its folder."""
    siblings = ("status.json", "checkpoints")
    return config.name == "config.yaml" and any((config.parent / name).exists() for name in siblings)


def _texts_in(content: str | bytes) -> Iterator[str]:
    """Yield all values in YAML, class paths among them, as far as it can be read; the parser reports the rest."""
    import yaml

    with contextlib.suppress(yaml.YAMLError, ValueError):
        for before, token in pairwise(yaml.scan(content)):
            if isinstance(token, yaml.ScalarToken) and not isinstance(before, yaml.KeyToken):
                yield token.value
