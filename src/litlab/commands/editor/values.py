"""The JSON schema of a type: what an editor lets pass for a setting, and what it offers.

An editor names the mistake where a schema has no alternatives: for a value of the wrong type that of all types, for one
of the right type the one rule that it breaks. So the parts of a union are merged by their JSON types.
"""

import enum
import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal, get_args, get_origin

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.commands.editor.bounds import make_range
from litlab.commands.editor.class_paths import is_general
from litlab.commands.editor.hints import kind, made_by, options
from litlab.commands.editor.names import is_described

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"  # which all editors know
JSON = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
TEXTS = (str, PurePath, timedelta)
WITH_PARAMETERS = (Optimizer, LRScheduler)  # of the model: a config says how they are made, as a Callable
FINITE = {"null": [None], "boolean": [True, False]}


class Values:
    """Makes the schemas of types.

    Args:
        refer: Returns the rules for a class that a config describes, that for its name alone and that for a block
            with its settings. They say nothing of values of another JSON type.
    """

    def __init__(self, refer: Callable[[type], tuple[Schema, Schema]]) -> None:
        self._refer = refer

    def value(self, hints: Iterable[Any], bounds: Schema | None = None) -> Schema:
        """Return the schema of a setting.

        Args:
            hints: The types that it may have.
            bounds: Those of its numbers whose types have none.
        """
        parts: dict[str, list[Schema]] = {}
        for part in dict.fromkeys(one for hint in hints for one in options(hint)):
            found = self._parts(part, bounds)
            if found is None:
                return {}
            for form, rule in found:
                if rule not in parts.setdefault(form, []):
                    parts[form].append(rule)
        return _merged(parts) if parts else {}

    def _parts(self, hint: Any, bounds: Schema | None) -> list[tuple[str, Schema]] | None:
        """Return a rule for each JSON type that values of a type may have; None where anything goes."""
        if getattr(hint, "__base__", None) in (int, float) and hasattr(hint, "bounds"):  # of litlab.types
            return [(JSON[hint.__base__], make_range(*hint.bounds))]
        if hint in JSON:
            return [(JSON[hint], bounds or {} if hint in (int, float) else {})]
        origin = get_origin(hint) or hint
        if origin is Literal:
            return [(JSON[type(choice)], {"enum": [choice]}) for choice in get_args(hint)]
        if inspect.isclass(origin) and issubclass(origin, enum.Enum):
            return [("string", {"enum": list(origin.__members__)})]
        if origin is type or (inspect.isclass(origin) and issubclass(origin, TEXTS)):
            return [("string", {})]
        match kind(hint):
            case "list":
                return [("array", self._items(hint, bounds))]
            case "mapping":
                inner = self.value(get_args(hint)[1:])
                return [("object", {"additionalProperties": inner} if inner else {})]
            case "class":
                made = made_by(hint)[0]
                if not is_described(made or origin) or origin in WITH_PARAMETERS:
                    return []
                names, block = self._refer(made or origin)
                return [("string", names), ("object", block)]
        return [("string", {}), ("object", {})] if origin is Callable else None

    def _items(self, hint: Any, bounds: Schema | None) -> Schema:
        parts = get_args(hint)
        if get_origin(hint) is tuple and Ellipsis not in parts:
            items = [self.value([part], bounds) for part in parts]
            return {"items": items, "minItems": len(items), "maxItems": len(items)}
        items = self.value(parts[:1], bounds)
        classes = [made_by(one)[0] or one for part in parts[:1] for one in options(part)]
        if any(inspect.isclass(cls) and kind(cls) == "class" and is_general(cls) for cls in classes):
            items["required"] = ["class_path"]  # no file before this one can have named it
        return {"items": items} if items else {}


def _merged(parts: dict[str, list[Schema]]) -> Schema:
    """Return one schema for the rules of each JSON type."""
    if "number" in parts:  # whole numbers are numbers
        parts["number"] += [rule for rule in parts.pop("integer", []) if rule not in parts["number"]]
    rules = {form: _alternatives(found) for form, found in parts.items()}
    choices = {form: rule.get("enum", [] if rule else FINITE.get(form, [])) for form, rule in rules.items()}
    if all(choices.values()) and any(rules.values()):
        return {"enum": [choice for found in choices.values() for choice in found]}
    schema: Schema = {"type": list(rules) if len(rules) > 1 else next(iter(rules))}
    apart = []
    for form, rule in rules.items():
        if rule.keys() & {"enum", "if"}:
            apart.append({"if": {"type": form}, "then": rule})
        elif rule.keys() & {"$ref", "anyOf"}:
            apart.append(rule)
        else:  # keywords that say something of this type alone
            schema |= rule
    return schema | ({"allOf": apart} if apart else {})


def _alternatives(rules: list[Schema]) -> Schema:
    """Return a rule for what keeps one of several."""
    if {} in rules:
        return {}
    choices = dict.fromkeys(choice for rule in rules for choice in rule.get("enum", []))
    found: list[Schema] = [{"enum": list(choices)}] if choices else []
    found += [rule for rule in rules if "enum" not in rule]
    return found[0] if len(found) == 1 else {"anyOf": found}
