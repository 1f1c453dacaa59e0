"""An editor accepts the shipped configs, and refuses each of them with a misspelt key."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from litlab.util.yaml import Loader
from tests.conftest import CONFIGS, ROOT
from tests.litlab.commands.editor.schemas import find_mistake, write_schema

pytestmark = pytest.mark.filterwarnings("ignore:.*chararray")  # numpy, where jsonargparse looks at its classes

FILES = sorted([*CONFIGS.glob("*.yaml"), *CONFIGS.glob("with/*.yaml")])
ANY_KEYS = {"scheduling"}


def test_what_is_shipped_is_accepted_and_a_misspelt_key_refused(team, tmp_path):
    validator = Draft7Validator(write_schema(team, tmp_path))
    for file in FILES:
        text = file.read_text()
        schema = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
        assert (file.parent / schema).resolve() == ROOT / ".vscode/schemas/fit.json"
        assert find_mistake(validator, text) == "", file
    for file in (CONFIGS / "cifar.yaml", CONFIGS / "with/swa.yaml"):
        content = yaml.load(file.read_text(), Loader)
        accepted = [path for path in list_keys(content) if validator.is_valid(misspell(content, path))]
        assert accepted == []


def list_keys(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each key."""
    if isinstance(content, list):
        for number, value in enumerate(content):
            yield from list_keys(value, (*above, number))
    elif isinstance(content, dict):
        for key, value in content.items():
            yield (*above, key)
            if key not in ANY_KEYS:
                yield from list_keys(value, (*above, key))


def misspell(content: Any, path: tuple[Any, ...]) -> Any:
    """Return the content with another letter at the end of a key."""
    content = copy.deepcopy(content)
    block = content
    for key in path[:-1]:
        block = block[key]
    block[f"{path[-1]}x"] = block.pop(path[-1])
    return content
