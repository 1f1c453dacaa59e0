"""The JSON schemas of classes that configs name: by which names, and with which settings.

jsonargparse (4.53) has a schema of its own (``--print_completion jsonschema``). It stops at classes that no config may
name, takes any text for the name of a class, knows no short names, and refuses blocks of classes that it has not seen.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping

from litlab.commands.editor.bounds import BY_CLASS
from litlab.commands.editor.class_paths import is_general
from litlab.commands.editor.names import Named, named
from litlab.commands.editor.settings import Setting, settings_of
from litlab.commands.editor.values import Schema, Values

SETTINGS: Schema = {"type": "object", "description": "Its settings."}
FURTHER: Schema = {"type": "object", "description": "Arguments that it hands on, which its signature doesn't show."}


class Definitions:
    """Collects the schemas of classes, each under a name; `found` holds them once all settings were asked for."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}
        self._values = Values(self._refer)

    def setting(self, settings: Iterable[Setting], bounds: Schema | None = None) -> Schema:
        """Return the schema of a setting.

        Args:
            settings: What it is in each class that has it.
            bounds: Those of its numbers whose types have none.
        """
        settings = list(settings)
        schema = self._values.value([one.hint for one in settings], bounds)
        texts = {one.help for one in settings}
        if len(texts) == 1 and "" not in texts:
            schema["description"] = texts.pop()
        default = settings[0].default
        is_plain = isinstance(default, str | int) or (isinstance(default, float) and math.isfinite(default))
        if is_plain and all(one.default == default for one in settings):
            schema["default"] = default
        return schema

    def block(self, settings: dict[str, list[Setting]], bounds: Mapping[str, Schema]) -> Schema:
        """Return the schema of settings by key: ``augment.crop`` is in a block of its own, ``name+`` appends to a list.

        Args:
            settings: What each key is in the classes that have it.
            bounds: Those of numbers whose types have none, by key.
        """
        groups: dict[str, dict[str, list[Setting]]] = {}
        for key, found in settings.items():
            head, _, rest = key.partition(".")
            groups.setdefault(head, {})[rest] = found
        properties: dict[str, Schema] = {}
        for head, inner in groups.items():
            if inner.keys() == {""}:
                properties[head] = schema = self.setting(inner[""], bounds.get(head))
                if "array" in schema.get("type", ()):
                    properties[f"{head}+"] = {**schema, "description": f"Appends to {head}."}
            else:
                block = self.block({key: found for key, found in inner.items() if key}, {})
                properties[head] = {"type": "object", **block}
        return {"properties": properties, "additionalProperties": False}

    def _refer(self, base: type) -> tuple[Schema, Schema]:
        """Return the rules for a class by its name alone, and for a block; their definitions are made once."""
        name = f"{base.__module__}.{base.__qualname__}"
        if name not in self.found:
            self.found[name] = {}  # its settings may name it again
            choices = _readable(named(base))
            self.found[f"{name}:names"] = _names(list(choices))
            self.found[name] = self._block(name, base, choices)
        return _to(f"{name}:names"), _to(name)

    def _block(self, name: str, base: type, choices: dict[Named, dict[str, Setting]]) -> Schema:
        """Return the rule for a block, which depends on the class that it names."""
        bounds = next((table for parent, table in BY_CLASS.items() if issubclass(base, parent)), {})
        together: dict[str, list[Setting]] = {}  # what a block that names no class may set: one before it has
        by_name = []
        for one, settings in choices.items():
            own = f"{one.paths[-1]}()"
            if own not in self.found:
                self.found[own] = {}
                self.found[own] = self.block({key: [found] for key, found in settings.items()}, bounds)
            chosen = {"properties": {"class_path": {"enum": one.names}}, "required": ["class_path"]}
            by_name.append({"if": chosen, "then": _init_args(own)})
            for key, setting in settings.items():
                together.setdefault(key, []).append(setting)
        self.found[f"{name}:any"] = self.block(together, bounds)
        unnamed = {"if": {"not": {"required": ["class_path"]}}, "then": _init_args(f"{name}:any")}
        which = {"type": "string", "description": f"Which {base.__name__}.", "allOf": [_to(f"{name}:names")]}
        block: Schema = {
            "properties": {"class_path": which, "init_args": SETTINGS, "dict_kwargs": FURTHER},
            "additionalProperties": False,
            "allOf": [*by_name, unnamed],
        }
        if is_general(base):
            return block
        is_block = {"anyOf": [{"required": ["class_path"]}, {"required": ["init_args"]}]}
        return {"if": is_block, "then": block, "else": _to(f"{name}:any")}


def _readable(choices: list[Named]) -> dict[Named, dict[str, Setting]]:
    """Return what may be named with its settings, without classes that the parser can't build for their types."""
    found = {}
    for one in choices:
        with contextlib.suppress(ValueError):
            found[one] = settings_of(one.target)
    return found


def _names(choices: list[Named]) -> Schema:
    """Return the rule for a class's name: any path, or one of the short names."""
    path = {"pattern": "\\."}
    short = {one.short: one.summary for one in choices if one.short}
    then = {"enum": list(short), "enumDescriptions": list(short.values())} if short else path
    return {"examples": [one.usual for one in choices], "if": {"type": "string", "not": path}, "then": then}


def _init_args(definition: str) -> Schema:
    return {"properties": {"init_args": _to(definition)}}


def _to(definition: str) -> Schema:
    return {"$ref": f"#/definitions/{definition}"}
