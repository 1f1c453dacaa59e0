"""``base:`` in a config file: the config files that it builds on.

``--config mine.yaml`` with ``base: cifar.yaml`` is read as ``--config cifar.yaml --config mine.yaml``. So one rule says
how configs are merged, and messages, trust and other processes need to know nothing else. ``sys.argv`` stays as it was
typed: every process looks up the bases itself.
"""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from litlab.cli.named_modules import flag_of, is_of_a_run
from litlab.errors import UserError
from litlab.util.nearest import nearest
from litlab.util.yaml_files import Loader, check, check_mapping, flat, place, read_text

BASE = "base"


def with_bases(arguments: list[str]) -> list[str]:
    """Return a command line with the bases of each config file in front of it, each as a ``--config`` of its own.

    Raises:
        UserError: If a file can't be read, or its base is a mistake.
    """
    found: list[str] = []
    for argument, following in pairwise([*arguments, "--"]):
        flag, value = flag_of(argument, following)
        if flag in ("--config", "-c") and value and is_file_name(value):
            found += [f"--config={file}" for file in chain(Path(value))[:-1]]
        found.append(argument)
    return found


def is_file_name(value: str) -> bool:
    """Return whether the value of ``--config`` names a file; else it is YAML itself, or ``-`` for standard input."""
    return os.path.isfile(value) or not (
        value.lstrip().startswith("{") or "\n" in value or ": " in value or value == "-"
    )


def chain(file: Path, above: tuple[Path, ...] = ()) -> list[Path]:
    """Return a config file behind its bases, each behind its own: the order in which they apply.

    Args:
        file: The file. One that several others build on is there once, in front of them.
        above: The files that build on this one, resolved.

    Raises:
        UserError: If one of them can't be read, or its base is a mistake.
    """
    text = read_text(file)
    root = check_mapping(check(text, str(file)), str(file))
    node = next((value for key, value in root.value if key.value == BASE), None)
    if node is None:
        return [file]
    above = (*above, file.resolve())
    try:
        if is_of_a_run(file):  # else a foreign one could name files that would count as the user's own
            raise UserError("base: the config of a run is complete; remove the base")
        bases = base_files(yaml.load(text, Loader=Loader)[BASE], file)
        if again := next((base for base in bases if base.resolve() in above), None):
            raise UserError(f"base: {again}: the configs build on each other in a circle; remove one of them")
    except UserError as error:
        raise UserError(flat(f"{place(str(file), node)}: {error}")) from None
    found: list[Path] = []
    for base in bases:
        found += [path for path in chain(base, above) if path not in found]
    return [*found, file]


def base_files(value: Any, file: Path) -> list[Path]:
    """Return the files that a ``base`` names, relative to the working directory where they lie in it.

    Args:
        value: A path or several, relative to the folder of a file.
        file: That file.

    Raises:
        UserError: If it is something else, or one of them is no file.
    """
    folder = file.parent
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, str) and item for item in items):
        raise UserError("base: it must be a config file or a list of them, by their paths relative to this file")
    for item in items:
        path = folder / item
        if os.path.isdir(path):
            raise UserError(f"base: {item}: it is a folder; name a file in it")
        if not os.path.exists(path):
            rooms = [room for room in (folder, path.parent) if os.path.isdir(room)]
            files = {other for room in rooms for other in room.glob("*.yaml")} - {file}
            others = [os.path.relpath(other, folder) for other in files]
            raise UserError(f"base: {item}: no such file{nearest(item, others, '; paths are relative to this file')}")
    here = Path.cwd().resolve()
    paths = [(folder / item).resolve() for item in items]
    return [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]


def without_base(root: yaml.Node | None) -> yaml.Node | None:
    """Return the nodes of a config file without its base."""
    if not isinstance(root, yaml.MappingNode) or all(key.value != BASE for key, _ in root.value):
        return root
    rest = [(key, value) for key, value in root.value if key.value != BASE]
    return yaml.MappingNode(root.tag, rest, root.start_mark, root.end_mark, root.flow_style)
