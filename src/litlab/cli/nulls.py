"""Settings that are null although they must not be: jsonargparse takes null for a value that is not given."""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from jsonargparse import Namespace

from litlab.cli.class_paths import parameters, takes_null


def not_set(config: Namespace, known: dict[str, Any]) -> Iterator[str]:
    """Keys that are null although their type does not allow it, and truth values that are none.

    Args:
        config: What was parsed.
        known: Types by key.
    """
    for section in {key.split(".")[0] for key in known if "." in key}:
        if not isinstance(config.get(section), Namespace):
            yield section
            return
    for key, hint in known.items():
        value = config.get(key)
        if (hint is bool and not isinstance(value, bool)) or (value is None and key in config and not takes_null(hint)):
            yield key
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Namespace) and isinstance(item.get("class_path"), str):
                yield from (f"{key}.{one}" for one in _not_set_in(item))


def _not_set_in(spec: Namespace) -> Iterator[str]:
    module, _, name = spec.class_path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)  # the parser has imported it
    settings = spec.get("init_args")
    if inspect.isclass(found) and isinstance(settings, Namespace):
        hints = {key: hint for key, hint in parameters(found)[0].items() if key in settings}
        yield from not_set(settings, hints)
