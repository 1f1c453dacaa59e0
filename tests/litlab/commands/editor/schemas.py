"""A schema as an editor uses it; not a test itself."""

import json
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from litlab.util.yaml import Loader
from tests.processes import Python


def write_schema(package: str, folder: Path) -> dict[str, Any]:
    """Return what the command ``schema`` writes into a folder, in a process that knows no classes of tests."""
    process = Python("-m", package, "schema", cwd=folder)
    _, err = process.communicate()
    assert process.wait() == 0, err
    return json.loads((folder / ".vscode/schemas/fit.json").read_text())


def find_mistake(validator: Draft7Validator, text: str) -> str:
    """Return what an editor underlines in YAML, as its place and the reason; empty where nothing is wrong."""
    error = best_match(validator.iter_errors(yaml.load(text, Loader)))
    return "" if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
