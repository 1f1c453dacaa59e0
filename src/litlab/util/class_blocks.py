"""The blocks of a config that name a class: ``{class_path: ..., init_args: {...}}``."""

import sys
from collections.abc import Iterator
from typing import Any


def imported(path: str) -> Any:
    """Return what a class path leads to, as far as its module has been imported; else None."""
    module, _, name = path.rpartition(".")
    parent = sys.modules.get(module) or (imported(module) if "." in module else None)  # or: a method or nested class
    return None if parent is None else getattr(parent, name, None)


def class_blocks(value: Any, key: str = "") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Find all classes that a config names, those in the arguments of others too.

    Args:
        value: The config, or a part of it, as plain dicts and lists.
        key: Its key.

    Yields:
        For each block its key without ``init_args``, its class path and its arguments.
    """
    if isinstance(value, dict):
        if isinstance(value.get("class_path"), str):
            yield key, value["class_path"], value.get("init_args") or {}
        for name, part in value.items():
            below = key if name == "init_args" else f"{key}.{name}" if key else str(name)
            yield from class_blocks(part, below)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from class_blocks(part, f"{key}[{number}]")
