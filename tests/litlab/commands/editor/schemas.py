"""Schemas as an editor uses them; not a test itself."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, ValidationError
from referencing import Registry, Resource

from litlab.util.yaml import Loader
from tests.conftest import command


def written(package: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The schemas that the command ``schema`` writes in a folder, by the name of their file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert command(patch, "schema", package=package) == 0
    return {file.stem: json.loads(file.read_text()) for file in (folder / ".vscode/schemas").iterdir()}


class Editor:
    """Checks YAML.

    Args:
        schemas: The schemas by the name of their file.
    """

    def __init__(self, schemas: dict[str, dict[str, Any]]) -> None:
        files = [(f"{name}.json", Resource.from_contents(schema)) for name, schema in schemas.items()]
        registry = Registry().with_resources(files)
        self._validators = {name: Draft7Validator(schema, registry=registry) for name, schema in schemas.items()}

    def mistakes(self, name: str, *texts: str) -> list[str]:
        """What an editor underlines, each as its place and the reason; keys of a later text replace earlier ones."""
        value = {key: one for text in texts for key, one in yaml.load(text, Loader).items()}
        return sorted(map(_shown, self._validators[name].iter_errors(value)))


def _shown(error: ValidationError) -> str:
    """An error, an unknown key at that key as in an editor, not at the block that it is in."""
    path = [str(part) for part in error.absolute_path]
    if error.validator != "additionalProperties":
        return f"{'.'.join(path)}: {error.message}"
    block: Any = error.instance
    schema: Any = error.schema
    unknown = sorted(block.keys() - schema["properties"].keys())
    return f"{'.'.join([*path, *unknown])}: not allowed"
