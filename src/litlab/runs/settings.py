"""The settings of a run: its config, flat, and how those of several runs differ."""

from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from litlab.errors import UserError
from litlab.runs.folder import read_plain
from litlab.util.yaml import Loader, parse_mapping

DEEPEST = 50  # blocks in blocks


def read_config(path: Path) -> dict[str, Any]:
    """Read the resolved config of a run.

    Raises:
        UserError: If there is none, or it is not what a run writes. A few lines of aliases can stand for a billion
            values, and the C parser crashes where thousands of blocks are in each other.
    """
    text, depth = read_plain(path), 0
    with suppress(yaml.YAMLError):  # which `parse_mapping` describes
        for event in yaml.parse(text, Loader=Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                raise UserError(
                    f"{path}: it has YAML aliases or is nested too deeply, and no run writes such; restore it"
                )
    return parse_mapping(text, path)


def flatten(config: Any, key: str = "") -> dict[str, Any]:
    """Flatten a config to dotted keys, as they are typed on the command line.

    A class has the key of its section, its settings are below: ``model`` is ``CifarCNN``, ``model.width`` 128.
    Callbacks and other lists of classes go by the name of the class, as their order has no meaning; a list that has a
    class twice stays as it is.

    Args:
        config: The config, or a part of it.
        key: The key of that part.
    """
    flat: dict[str, Any] = {}
    if _is_class(config):
        flat[key] = _short_name(config)
        config = config.get("init_args") or {}
    elif isinstance(config, list) and config and all(map(_is_class, config)):
        named = {_short_name(item): item for item in config}
        config = named if len(named) == len(config) else config
    if not isinstance(config, dict):
        return {key: config}
    for name, value in config.items():
        flat |= flatten(value, f"{key}.{name}" if key else str(name))
    return flat


def differences(settings: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of the keys that are not the same everywhere; None where a key is missing."""
    rows = {key: [flat.get(key) for flat in settings] for key in chain(*settings)}
    return {key: row for key, row in rows.items() if row.count(row[0]) < len(row)}


def format_value(value: Any) -> str:
    """Return the value of a setting as YAML has it; ``-`` for null, or where it is missing."""
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_class(config: Any) -> bool:
    return isinstance(config, dict) and isinstance(config.get("class_path"), str)


def _short_name(config: dict[str, Any]) -> str:
    return config["class_path"].rpartition(".")[2]
