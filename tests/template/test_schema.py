"""An editor accepts the shipped configs and sweep files, and refuses each of them with a misspelt key."""

import copy
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from litlab.cli.commands import list_commands
from litlab.util.yaml import Loader
from tests.conftest import CONFIGS, ROOT
from tests.litlab.commands.editor.schemas import Editor, written

FILES = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "cluster")  # that is for Kubernetes
MISSPELT = [*CONFIGS.glob("with/*.yaml"), *(CONFIGS / f"{name}.yaml" for name in ("cifar", "text", "sweeps/forecast"))]
MADE_UP = {"scheduling", "choices", "when"}  # what is in these has any keys
MODELINE = "# yaml-language-server: $schema="
LAUNCHES = json.loads((ROOT / ".vscode/launch.json").read_text())["configurations"]
WRONG = {
    "model: {class_path: CifarCNN, init_args: {width: 2}}": "model.init_args.width: 2 is less than the minimum of 4",
    "model: {class_path: CifarCNN, init_args: {hidden_size: 2}}": "model.init_args.hidden_size: not allowed",
    "model: {init_args: {optimizer: {class_path: CifarMoun}}}":
        "model.init_args.optimizer.class_path: 'CifarMoun' is not one of ['CifarMuon', ",
    "model: {init_args: {network: {class_path: project.networks.vgg.VGG, init_args: {width: [8]}}}}":
        "model.init_args.network.init_args.width: not allowed",
    "data: {class_path: AGNewsData, init_args: {batch_size: 0}}":
        "data.init_args.batch_size: 0 is less than the minimum of 1",
    "trainer: {callbacks: [{class_path: ForecastPlot}]}":
        "trainer.callbacks.0.class_path: 'ForecastPlot' is not one of ['ForecastPlots', ",
}  # fmt: skip


@pytest.fixture(scope="module")
def editor(team, _team, tmp_path_factory) -> Editor:
    return Editor(written(team, tmp_path_factory.mktemp("schemas")))


def schema_of(file: Path) -> Path:
    """The schema that the first line of a config names."""
    first = file.read_text().partition("\n")[0]
    assert first.startswith(MODELINE), "write the line that names the schema, as in the other configs"
    return (file.parent / first.removeprefix(MODELINE)).resolve()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CONFIGS)))
def test_what_is_shipped_is_accepted(editor, file):
    schema = schema_of(file)
    assert schema.parent == ROOT / ".vscode/schemas"
    assert schema.stem == ("sweep" if file.parent.name == "sweeps" else "fit")
    assert editor.mistakes(schema.stem, file.read_text()) == []


@pytest.mark.parametrize("file", sorted(MISSPELT), ids=lambda file: str(file.relative_to(CONFIGS)))
def test_a_misspelt_key_is_refused(editor, file):
    content = yaml.load(file.read_text(), Loader)
    for path in keys(content):
        found = editor.mistakes(schema_of(file).stem, json.dumps(misspelt(content, path)))
        assert any(path[-1] in line for line in found), (path, found)


def keys(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each key that is not made up."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield (*above, key)
            yield from keys(value if key not in MADE_UP else None, (*above, key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from keys(value, (*above, number))


def misspelt(content: Any, path: tuple[Any, ...]) -> Any:
    """The content with another letter at the end of a key."""
    content = copy.deepcopy(content)
    block = content
    for key in path[:-1]:
        block = block[key]
    block[f"{path[-1]}x"] = block.pop(path[-1])
    return content


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(editor, text):
    found = editor.mistakes("fit", text)
    assert len(found) == 1, found
    assert found[0].startswith(WRONG[text]), found


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch["name"])
def test_the_debugger_starts_commands_that_there_are(run, team, launch):
    assert launch["cwd"] == "${workspaceFolder}"
    assert launch["module"] in (team, "pytest")
    assert find_spec(launch["module"])
    if launch["module"] == team:
        assert launch["args"][0] in list_commands()
        arguments = [word.replace("${file}", "configs/linear.yaml") for word in launch["args"]]
        arguments = [str(ROOT / word) if word.startswith("configs/") else word for word in arguments]
        done = run(*arguments, "--print_config")
        assert (done.code, done.err) == (0, "")
