"""``python -m PACKAGE completion``: the script with which bash and zsh complete commands, flags and class names."""

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib.resources import files

from litlab.cli.commands import EXPERIMENT, FLAGS, import_command, list_commands
from litlab.commands.editor.schema import Schema, make_schema
from litlab.util.options import Options
from litlab.util.team import package

DESCRIPTION = """\
Print a script with which bash and zsh complete commands, flags, choices, class names and runs, of
`python -m {package}` and of `{package}`, a function that it defines (docs/editor.md). Print it again when a
class or its arguments have changed.

  %(prog)s > ~/.{package}-completion.sh && echo source ~/.{package}-completion.sh >> ~/.bashrc
"""
NO_SETTINGS = ("--config", "--help", "--print_config", "--run", "--input", "--output", "--allow_modules", *FLAGS)
DEEPEST = 3  # dots of a flag, as in --model.schedule.scheduler.warmup
OPTION = re.compile(r"^  (--[\w-]+)(?: \{(.*?)\})?", re.MULTILINE)  # as --help lists it, with its choices


def main(arguments: list[str]) -> int:
    Options("completion", DESCRIPTION.format(package=package())).parse_args(arguments)
    script = (files("litlab.commands.editor") / "completion.sh").read_text()
    table = "\n".join(list_rows())
    print(script.replace("@TABLE@", table).replace("PACKAGE", package()), end="")
    return 0


def list_rows() -> Iterator[str]:
    """Yield rows of words: a command, a dash for those that take every setting; one of its flags; its values."""
    yield " ".join(["commands", *list_commands()])

    # Settings, by the schema
    schema = make_schema()
    flags: dict[str, list[str]] = {flag: [] for flag in NO_SETTINGS}
    for key, setting in schema["properties"].items():
        add_flags(flags, f"--{key}", setting, schema["$defs"])
    for flag, values in flags.items():
        yield " ".join(["-", flag, *dict.fromkeys(values)])

    # Options of the other commands, by their help
    for name in list_commands().keys() - EXPERIMENT:
        with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
            import_command(name)(["--help"])
        for flag, choices in OPTION.findall(printed.getvalue()):
            yield " ".join([name, flag, *choices.split(",")])


def add_flags(
    flags: dict[str, list[str]], flag: str, schema: Schema, classes: dict[str, Schema], above: tuple[str, ...] = ()
) -> None:
    """Add a setting and the settings of the classes that it takes, with the values that can be listed.

    The settings of classes `above` are not repeated.
    """
    values = flags.setdefault(flag, [])
    values += map(str, schema.get("enum", []))
    if "boolean" in schema.get("type", ""):
        values += ["true", "false"]

    # What else the same flag takes: alternatives, items of a list, classes by their names
    alternatives = [*schema.get("anyOf", []), schema.get("items"), schema.get("then")]
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and name not in above:
        alternatives.append(classes[name])
        above = (*above, name)
    for rule in schema.get("else", {}).get("allOf", []):
        if "then" in rule:
            alternatives.append(rule["then"]["properties"]["init_args"])
    for alternative in filter(None, alternatives):
        add_flags(flags, flag, alternative, classes, above)

    # The settings of a block
    if flag.count(".") < DEEPEST:
        for key, setting in schema.get("properties", {}).items():
            add_flags(flags, f"{flag}.{key}", setting, classes, above)
