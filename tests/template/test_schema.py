"""An editor accepts the shipped configs, and refuses each of them with a misspelt key."""

import copy
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from litlab.cli.commands import list_commands
from litlab.util.yaml import Loader
from tests.conftest import CONFIGS, ROOT
from tests.litlab.commands.editor.schemas import find_mistake, write_schema

pytestmark = pytest.mark.filterwarnings("ignore:.*chararray")  # numpy, where jsonargparse looks at its classes

FILES = sorted([*CONFIGS.glob("*.yaml"), *CONFIGS.glob("with/*.yaml")])
MISSPELT = [*CONFIGS.glob("with/*.yaml"), CONFIGS / "cifar.yaml", CONFIGS / "text.yaml"]
ANY_KEYS = {"scheduling"}
LAUNCHES = json.loads((ROOT / ".vscode/launch.json").read_text())["configurations"]
WRONG = {
    "model: {class_path: CifarCNN, init_args: {width: 2}}": "model.init_args.width: 2 is less than the minimum of 4",
    "model: {class_path: CifarCNN, init_args: {hidden_size: 2}}": "model.init_args: Additional properties",
    "data: {class_path: AGNewsData, init_args: {batch_size: 0}}": "data.init_args.batch_size: 0 is less than",
    "trainer: {callbacks: [{class_path: ForecastPlot}]}": "trainer.callbacks.0.class_path: 'ForecastPlot' is not valid",
}


@pytest.fixture(scope="module")
def validator(team, _team, tmp_path_factory) -> Draft7Validator:
    return Draft7Validator(write_schema(team, tmp_path_factory.mktemp("schema")))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_shipped_is_accepted(validator, file):
    text = file.read_text()
    schema = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / schema).resolve() == ROOT / ".vscode/schemas/fit.json"
    assert find_mistake(validator, text) == ""


@pytest.mark.parametrize("file", MISSPELT, ids=lambda file: file.stem)
def test_a_misspelt_key_is_refused(validator, file):
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


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(validator, text):
    assert find_mistake(validator, text).startswith(WRONG[text])


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch["name"])
def test_the_debugger_starts_commands_that_there_are(run, team, launch):
    assert launch["module"] in (team, "pytest")
    assert find_spec(launch["module"])
    if launch["module"] == team:
        assert launch["args"][0] in list_commands()
        arguments = [word.replace("${file}", "configs/linear.yaml") for word in launch["args"]]
        arguments = [str(ROOT / word) if word.startswith("configs/") else word for word in arguments]
        done = run(*arguments, "--print_config")
        assert (done.code, done.err) == (0, "")
