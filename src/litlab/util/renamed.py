"""Names of litlab that have changed: the old ones work for one more minor version, and warn with the new one.

docs/updates.md says how to rename something.
"""

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from litlab.util.former_names import path_of_now

# By class of litlab: the settings that have another name now, and the version that no longer knows the old one.
SETTINGS: dict[str, dict[str, tuple[str, str]]] = {
    "GradientNoiseScale": {"every": ("every_n_steps", "0.4.0")},
}
_warned: dict[Any, Any] = {}  # places of configs, which are parsed more than once


class RenamedWarning(FutureWarning):
    """Something is named that has another name now."""


def renamed_attributes(module: str, until: str, **names: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` with which a module has its old names, too.

    ``__getattr__ = renamed_attributes(__name__, "0.4.0", OLD="NEW")``

    Args:
        module: The module.
        until: The version of litlab that no longer has them.
        names: The new name by the old one.
    """

    def attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(_line(f"{module}.{name}", names[name], until), RenamedWarning, stacklevel=2)
        return getattr(importlib.import_module(module), names[name])

    return attribute


def new_setting(cls: str, name: str) -> str | None:
    """Return the new name of a setting of a class; None if it was not renamed."""
    return SETTINGS.get(cls, {}).get(name, (None,))[0]


def use_new_names(root: yaml.Node | None, file: str = "") -> bool:
    """Give classes and their settings in a config the names that they have now.

    Args:
        root: The nodes of the config, which are changed.
        file: Its name, for the warnings about settings; without one there are none.

    Returns:
        Whether there was anything to change.
    """
    found = list(_old_names(root, set()))
    for node, new, old, until in found:
        node.value = new
        if file and until:
            line = node.start_mark.line + 1
            warnings.warn_explicit(_line(old, new, until), RenamedWarning, file, line, registry=_warned)
    return bool(found)


def saved_as_now(value: Any) -> Any:
    """Return what a run or checkpoint has saved with the names that classes and their settings have now.

    Args:
        value: A config, hyper-parameters, or a part of them. It is not changed.
    """
    if isinstance(value, dict):
        value = {key: saved_as_now(part) for key, part in value.items()}
        if cls := _class_name(value.get("_class_path")):  # hyper-parameters
            return _renamed(value, cls)
        if cls := _class_name(value.get("class_path")):
            return {**value, "init_args": _renamed(value.get("init_args"), cls)}
        return value
    if type(value) in (list, tuple):
        return type(value)(map(saved_as_now, value))
    return path_of_now(value) if isinstance(value, str) else value


def one_line(message: Warning | str, category: type[Warning], file: str, number: int, line: str | None = None) -> str:
    """Format a warning, in place of ``warnings.formatwarning``: ours in one line, without the line of code."""
    if issubclass(category, RenamedWarning):
        return f"warning: {file}:{number}: {message}\n"
    return _usual(message, category, file, number, line)


_usual = warnings.formatwarning


def _line(old: str, new: str, until: str) -> str:
    return f"{old} is called {new} now; rename it before litlab {until}, which will not know the old name"


def _class_name(path: Any) -> str:
    """Return the name of a class of litlab with renamed settings; "" for any other class, and what is none."""
    package, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    return name if package.partition(".")[0] in ("", "litlab") and name in SETTINGS else ""


def _renamed(settings: Any, cls: str) -> Any:
    if not isinstance(settings, dict):
        return settings
    return {new_setting(cls, key) or key: value for key, value in settings.items()}


def _old_names(node: yaml.Node | None, seen: set[int]) -> Iterator[tuple[yaml.ScalarNode, str, str, str]]:
    """Yield each node that says something by an old name, with the new one; for a setting, also the old and its end."""
    if isinstance(node, yaml.ScalarNode) and (new := path_of_now(node.value)) != node.value:
        yield node, new, "", ""
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _old_names(item, seen)
        return
    inside = {key.value: value for key, value in node.value}
    cls = _class_name(getattr(inside.get("class_path"), "value", None))
    settings = inside.get("init_args")
    if cls and isinstance(settings, yaml.MappingNode):
        for key, _ in settings.value:
            if key.value in SETTINGS[cls]:
                new, until = SETTINGS[cls][key.value]
                yield key, new, f"{cls}.{key.value}", until
    for value in inside.values():
        yield from _old_names(value, seen)
