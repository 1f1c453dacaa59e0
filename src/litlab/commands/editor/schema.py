"""``python -m PACKAGE schema``: JSON schemas with which an editor checks and completes configs."""

import json
from pathlib import Path
from typing import Any

from litlab.util.files import check_folder, write_atomically
from litlab.util.options import Options, answer
from litlab.util.progress import progress_bar

FOLDER = Path(".vscode/schemas")
DESCRIPTION = """\
Write the JSON schemas of configs and sweep files into .vscode/schemas/, for editors (docs/editor.md). The
first line of a config names its schema. Write them again when a class or its arguments have changed.
"""


def main(arguments: list[str]) -> int:
    """Run the command ``schema``.

    Args:
        arguments: What follows the command on the command line.

    Returns:
        The exit code: 0; 2 after one line on what is wrong.
    """
    return answer(_schema, arguments)


def _schema(arguments: list[str]) -> int:
    Options("schema", DESCRIPTION).parse_args(arguments)
    check_folder("schema", FOLDER)
    schemas = all_schemas()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas.items():
        text = json.dumps(schema, separators=(",", ":"))
        write_atomically(FOLDER / f"{name}.json", lambda stream, text=text: stream.write(text.encode()))
    print(f"Written: {FOLDER}/{{{','.join(schemas)}}}.json")
    return 0


def all_schemas() -> dict[str, dict[str, Any]]:
    """Import the team's package, and return the schemas of its configs and sweep files, by the name of their file."""
    with progress_bar(total=3, desc="reading classes and their settings") as progress:
        from litlab.cli.quiet import silence_noise
        from litlab.cli.resolve import import_all_classes

        silence_noise()
        import_all_classes()
        progress.update(1)
        from litlab.commands.editor.configs import config_schemas
        from litlab.commands.editor.sweeps import sweep_schema

        schemas = config_schemas()
        progress.update(1)
        schemas["sweep"] = sweep_schema(schemas["fit"])
        progress.update(1)
    return schemas
