"""``python -m PACKAGE schema``: the JSON schema with which an editor checks and completes configs.

jsonargparse makes a schema of the parser. It is meant for whole configs which name classes by their
paths; here it is opened for overlays, short names, ``KEY+`` and classes that are not imported.
"""

import json
from abc import ABCMeta
from collections import Counter
from pathlib import Path
from typing import Any

from litlab.util.files import check_replaceable, write_output
from litlab.util.options import Options
from litlab.util.team import is_own

Schema = dict[str, Any]
FILE = Path(".vscode/schemas/fit.json")
DESCRIPTION = """\
Write the JSON schema of configs to .vscode/schemas/, for editors (docs/editor.md). The first line
of a config names it. Write it again when a class or its arguments have changed.
"""


def main(arguments: list[str]) -> int:
    Options("schema", DESCRIPTION).parse_args(arguments)
    check_replaceable(FILE)
    schema = make_schema()
    write_output(FILE, json.dumps(schema))
    print(f"Written: {FILE}")
    return 0


def make_schema() -> Schema:
    schema = relax(read_parser())
    for base, definition in schema["$defs"].items():
        schema["$defs"][base] = describe_class(base, definition)

    settings = schema["properties"]
    del settings["allow_modules"]  # a flag alone
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"  # which all editors know
    schema["patternProperties"] = {rf"^({'|'.join(settings)})\.": {}}  # trainer.max_epochs: 3
    return schema


def read_parser() -> Schema:
    """Import every class that a config could name, and return jsonargparse's schema of what ``fit``
    takes.
    """
    from jsonargparse import Namespace, set_parsing_settings

    from litlab.cli.config import Command
    from litlab.cli.noise import silence_noise

    class SchemaCommand(Command):
        def parse_arguments(self, parser: Any, args: Any) -> None:
            """Parse nothing: the parser is asked for, which knows all classes with --help."""
            self.config = Namespace()

    silence_noise()
    # jsonargparse (4.53) takes it for a class of which there are subclasses, and fails.
    set_parsing_settings(subclasses_disabled=[ABCMeta])
    return json.loads(SchemaCommand(["fit", "--help"]).parser.get_completion_script("jsonschema"))


def relax(schema: Any) -> Any:
    """Return a schema in which no key is required, as overlays have few, and ``KEY+`` appends to
    the list of KEY.
    """
    if isinstance(schema, list):
        return [relax(part) for part in schema]
    if not isinstance(schema, dict):
        return schema

    relaxed = {
        key: relax(part)
        for key, part in schema.items()
        if key != "required" or isinstance(part, dict)
    }
    if "prefixItems" in relaxed:  # of a tuple; draft 7 doesn't have it
        relaxed["items"] = {"anyOf": relaxed.pop("prefixItems")}

    # Where no alternative fits, an editor asks for the first one: null is the last
    relaxed.get("anyOf", []).sort(key=lambda part: part.get("type") == "null")

    settings = relaxed.get("properties", {})
    settings.pop("$schema", None)  # jsonargparse's own way to name the schema
    settings.update(
        {f"{key}+": setting for key, setting in settings.items() if takes_list(setting)}
    )
    return relaxed


def takes_list(setting: Schema) -> bool:
    return any(part.get("type") == "array" for part in [setting, *setting.get("anyOf", [])])


def describe_class(base: str, definition: Schema) -> Schema:
    """Return the schema of a setting that takes a class: its name, or a block with ``class_path``
    and ``init_args``.

    jsonargparse's has an alternative for each subclass. Where one of them is wrong, an editor can't
    tell which was meant; here the settings follow from the name.
    """
    blocks: dict[str, Schema] = {}
    for block in definition.get("anyOf", []):
        class_path = block.get("properties", {}).get("class_path", {})
        if "const" in class_path:
            blocks[class_path["const"]] = block
    if not blocks:
        return definition

    # A short name is enough where no other class has it; any other path may lead to a class
    counts = Counter(path.rpartition(".")[2] for path in blocks)
    short_names = [name for name, count in counts.items() if count == 1]
    any_name: Schema = {"type": "string", "anyOf": [{"enum": short_names}, {"pattern": r"\."}]}

    # The settings of each class; of the hundreds of modules only ours
    rules: list[Schema] = []
    unnamed: list[Schema] = []  # of an overlay: a config before it has named the class
    for path, block in blocks.items():
        short = path.rpartition(".")[2]
        if base == "Module" and not is_own(path):
            continue
        block["properties"]["class_path"] = {}
        unnamed.append({"$ref": f"#/$defs/{base}/else/allOf/{len(rules)}/then"})
        if short == base:
            unnamed.append(block["properties"]["init_args"])  # ema: {decay: 0.99}
        names = {"enum": [short, path] if short in short_names else [path]}
        rules.append(
            {"if": {"required": ["class_path"], "properties": {"class_path": names}}, "then": block}
        )
    rules.append({"if": {"required": ["class_path"]}, "else": {"anyOf": unnamed}})

    return {
        "type": ["string", "object"],
        "if": {"type": "string"},
        "then": any_name,
        "else": {"properties": {"class_path": any_name}, "allOf": rules},
    }
