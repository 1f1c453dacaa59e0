"""The settings of a run: its config, flat, and how those of several runs differ."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from litlab.errors import UserError, first_line
from litlab.runs.folder import read_plain
from litlab.util.yaml import Loader, parse_mapping

DEEPEST = 50  # blocks in blocks
MISSING = object()


def read_config(path: Path) -> dict[str, Any]:
    """Read the resolved config of a run.

    Raises:
        UserError: If there is none, or it is not what a run writes. A few lines of aliases can stand for a billion
            values, and the C parser crashes where thousands of blocks are in each other.
    """
    try:
        text = read_plain(path).decode(errors="replace")
    except OSError as error:
        raise UserError(f"{path}: it can't be read ({first_line(error)}); restore it") from error
    depth = 0
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
    Callbacks and other lists of classes go by the name of the class, as their order has no meaning.

    Args:
        config: The config, or a part of it.
        key: The key of that part.
    """
    flat: dict[str, Any] = {}
    if _is_class(config):
        settings = config.get("init_args")
        return {key: _short_name(config), **(flatten(settings, key) if settings else {})}
    if isinstance(config, dict) and (config or not key):
        for name, value in config.items():
            flat |= flatten(value, f"{key}.{name}" if key else str(name))
        return flat
    if isinstance(config, list) and config and all(map(_is_class, config)):
        for item in config:
            name = f"{key}.{_short_name(item)}"
            while name in flat:
                name += "#2"
            flat |= flatten(item, name)
        return flat
    return {key: config}


def differences(settings: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of the keys that are not the same everywhere; `MISSING` where a key is missing."""
    keys = dict.fromkeys(key for flat in settings for key in flat)
    rows = {key: [flat.get(key, MISSING) for flat in settings] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def format_value(value: Any) -> str:
    """Return the value of a setting as YAML has it; ``-`` where it is missing."""
    if value is MISSING:
        return "-"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_class(config: Any) -> bool:
    return isinstance(config, dict) and isinstance(config.get("class_path"), str)


def _short_name(config: dict[str, Any]) -> str:
    return config["class_path"].rpartition(".")[2]
