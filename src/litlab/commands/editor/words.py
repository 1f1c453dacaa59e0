"""What a shell can complete: the flags of each command, and the values that some of them take."""

import io
import re
from contextlib import redirect_stdout, suppress
from importlib import import_module

from litlab.cli.commands import EXPERIMENT, list_commands
from litlab.commands.editor.flags import class_of, flags, referred
from litlab.commands.editor.values import Schema

NO_SETTINGS = ("--config", "--help", "--print_config", "--allow_modules")  # flags that the schemas don't have
WITH_SETTINGS = {"bench": "fit", "shards": "fit", "export": "test", "serve": "test"}  # whose flags they take, too
SWITCHES = ("check",)  # no value follows
WORDS = {"boolean": ["true", "false"], "null": ["null"]}  # by JSON type

# What --help lists: a flag, with the choices for its value, or an argument without a flag that has choices.
LISTED = re.compile(r"^  (?=--|\{|-h)(?:-h, )?(--[\w-]+)? ?(?:\{([^}]*)\})?", re.MULTILINE)

Words = dict[str, list[str]]


def all_words(schemas: dict[str, Schema]) -> tuple[Words, Words]:
    """Return the flags of all commands, and the values of those flags whose values can be listed.

    Args:
        schemas: The schemas of configs, by verb.

    Returns:
        The flags by command; the values by command and flag, such as ``export --format``, with ``*`` for commands that
        take a config, and without a flag for what stands alone.
    """
    found, values = of_verbs({verb: schema for verb, schema in schemas.items() if verb != "sweep"})
    places = {name: place.partition(":")[0] for name, (place, _) in list_commands().items()}
    light = {name: module for name, module in places.items() if name not in EXPERIMENT}
    for verb, module in (*light.items(), ("fit", "litlab.commands.repeat.repeat")):
        own, choices = of_light(verb, module)
        found[verb] = sorted({*found.get(verb, []), *own})
        values |= choices
    for verb, other in WITH_SETTINGS.items():
        found[verb] = sorted({*found[verb], *found[other]})
    return found, values


def of_verbs(schemas: dict[str, Schema]) -> tuple[Words, Words]:
    """Return the flags of the verbs that take a config, and the values of these flags."""
    fit = schemas["fit"]
    known = {key: referred(reference, fit) for key, reference in flags(fit).items() if key != "base"}
    values = {key: listed(schema, fit) for key, schema in known.items() if key not in SWITCHES}
    values |= {f"{key}.help": values[key] for key, schema in known.items() if "." not in key and class_of(schema)}
    found = {}
    for verb, schema in schemas.items():
        own = schema["properties"].keys() - {"base"}
        keys = {*own, *(key for key in (*known, *values) if key.split(".")[0] in own)}
        found[verb] = [*NO_SETTINGS, *(f"--{key}" for key in keys)]
    values["ckpt_path"] = ["best", "last"]
    return found, {f"* --{key}": words for key, words in values.items() if words not in ([], ["null"])}


def listed(schema: Schema, config: Schema) -> list[str]:
    """Return the values of a setting that can be listed: choices, class names, true and false, null."""
    if schema.get("$ref", "").endswith(":names"):
        return referred(schema["$ref"], config)["examples"]
    found = [_typed(value) for value in schema.get("enum", [])]
    parts = [*schema.get("allOf", []), *schema.get("anyOf", []), schema.get("items"), schema.get("then")]
    found += [word for part in parts if isinstance(part, dict) for word in listed(part, config)]
    found += [word for form, words in WORDS.items() if form in schema.get("type", []) for word in words]
    return list(dict.fromkeys(found))


def of_light(verb: str, module: str) -> tuple[list[str], Words]:
    """Return the flags of a light command, and the values of those that have choices.

    Args:
        verb: The command.
        module: The module of its main().
    """
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        import_module(module).main(["--help"])
    lines = LISTED.findall(printed.getvalue())
    values = {f"{verb} {name}": choices.split(",") for name, choices in lines if choices}
    return [name for name, _ in lines if name], values


def _typed(value: object) -> str:
    """Return a value as it is typed on the command line."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
