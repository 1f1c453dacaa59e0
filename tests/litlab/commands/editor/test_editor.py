"""What an editor accepts and underlines."""

import pytest
import yaml
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from litlab.runs.folder import read_json
from litlab.util.yaml import Loader
from tests.conftest import IS_WHOLE, PACKAGE, ROOT
from tests.processes import Python

# numpy, where jsonargparse looks at its classes
pytestmark = pytest.mark.filterwarnings("ignore:.*chararray")

PLACES = ("configs/*.yaml", "configs/with/*.yaml", "src/examples/*/config.yaml")
SHIPPED = [config for place in PLACES for config in ROOT.glob(place)] if IS_WHOLE else []
RIGHT = [
    "trainer.max_epochs: 3",
    "trainer: {callbacks+: [EMA, {class_path: mine.Callback, init_args: {anything: 1}}]}",
    "model: mine.models.Model",
    "model: {init_args: {label_smoothing: 0.1, optimizer: {init_args: {fused: true}}}}",
    "{ema: {decay: 0.9}, swa: null, seed_everything: true, resume: last}",
]
WRONG = {
    "modle: {}": ": 'modle' does not match",
    "trainer: {max_epochs+: [3]}": "trainer: Additional properties are not allowed ('max_epochs+'",
    "model: {init_args: {label_smothing: 0.1}}": "model: ",
    "data: {class_path: ImageData, init_args: {image_size: [3, a]}}": (
        "data.init_args.image_size.1: 'a' is"
    ),
    "trainer: {callbacks+: [{class_path: EMA, init_args: {monitor: a}}]}": (
        "trainer.callbacks+.0.init_args: Additional"
    ),
    "trainer: {max_epochs: three}": "trainer.max_epochs: 'three' is not of type 'integer', 'null'",
    "ema: {decay: 1}": "ema.decay: 1 is greater than or equal to the maximum of 1",
}


def find_mistake(validator, text) -> str:
    """Return what an editor underlines in YAML, as its place and the reason; empty where nothing is
    wrong.
    """
    error = best_match(validator.iter_errors(yaml.load(text, Loader)))
    return "" if error is None else f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


def test_what_an_editor_accepts(tmp_path):
    """With the team's package, in one test, as the schema takes seconds."""
    process = Python("-m", PACKAGE, "schema", cwd=tmp_path)  # which knows no classes of tests
    assert process.wait() == 0, process.printed()
    schema = read_json(tmp_path / ".vscode/schemas/fit.json")
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    for text in [*RIGHT, *(config.read_text() for config in SHIPPED)]:
        assert find_mistake(validator, text) == "", text
    for text, message in WRONG.items():
        assert find_mistake(validator, text).startswith(message), text
    for config in SHIPPED:
        named = (
            config.read_text().partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
        )
        assert (config.parent / named).resolve() == ROOT / ".vscode/schemas/fit.json"
