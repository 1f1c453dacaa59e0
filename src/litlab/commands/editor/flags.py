"""The flags of a config's schema, such as ``model.optimizer.lr``, and where the schema of each is."""

from collections.abc import Iterator
from functools import reduce

from litlab.commands.editor.values import Schema
from litlab.util.team import is_own

MANY = 100  # classes that a setting takes: from there on, flags for the settings of the team's and litlab's alone
ROOT = "#"


def flags(config: Schema) -> dict[str, str]:
    """Return the flags that set something in a config, each with a reference to its schema.

    Args:
        config: The schema of ``fit``, with the definitions. Where a setting takes several classes, the flags below it
            are the settings of all of them.
    """
    return dict(_below("", ROOT, config, frozenset()))


def referred(reference: str, config: Schema) -> Schema:
    """Return the schema that a reference leads to."""
    return reduce(lambda part, key: part[key], reference.split("/")[1:], config)


def takes_many(schema: Schema, config: Schema) -> bool:
    """Return whether a setting takes so many classes that there are no flags for the settings of most."""
    block = class_of(schema)
    return block is not None and len(names_of(block, config)) >= MANY


def class_of(schema: Schema) -> str | None:
    """Return the reference to the block of the class that a setting takes; None if it takes none."""
    rules = [*schema.get("allOf", []), *schema.get("anyOf", []), schema]
    return next((rule["$ref"] for rule in rules if not rule.get("$ref", ":names").endswith(":names")), None)


def names_of(block: str, config: Schema) -> list[list[str]]:
    """Return the names of each class whose settings are in a block, by its reference."""
    schema = referred(block, config)
    rules = schema.get("then", schema)["allOf"][:-1]  # the last one is for blocks that don't say which
    return [rule["if"]["properties"]["class_path"]["enum"] for rule in rules]


def _below(prefix: str, reference: str, config: Schema, above: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags below a setting, but not those of a class within itself."""
    schema = referred(reference, config)
    for key in schema.get("properties", {}):
        inner = f"{reference}/properties/{key}"
        yield f"{prefix}{key}", inner
        if not key.endswith("+"):
            yield from _below(f"{prefix}{key}.", inner, config, above)
    if isinstance(schema.get("items"), dict):
        yield from _below(prefix, f"{reference}/items", config, above)
    block = class_of(schema)
    if block is not None and block not in above:
        own = [f"#/definitions/{paths[-1]}()" for paths in names_of(block, config) if is_own(paths[-1])]
        for settings in own if takes_many(schema, config) else [f"{block}:any"]:
            yield from _below(prefix, settings, config, above | {block})
