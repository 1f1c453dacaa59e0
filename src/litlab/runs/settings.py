"""The settings of a run: its config, flat, and how those of several runs differ."""

from itertools import chain
from typing import Any


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
