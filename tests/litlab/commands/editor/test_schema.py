"""The schemas accept what the command line accepts, and name what is wrong with everything else."""

from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from litlab.commands.editor.settings import VERBS
from litlab.commands.sweep.spec import KEYS
from tests.litlab.cli.test_messages import FILES, GOOD
from tests.litlab.commands.editor.cases import RIGHT, RIGHT_SWEEPS, SWEEP, WRONG, WRONG_SWEEPS
from tests.litlab.commands.editor.schemas import Editor
from tests.litlab.conftest import CONFIGS


@pytest.fixture(scope="module")
def editor(schemas) -> Editor:
    return Editor(schemas)


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_is_accepted(editor, text):
    assert editor.mistakes("fit", text) == []


@pytest.mark.parametrize("config", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_configs_are_accepted(editor, config):
    assert editor.mistakes("fit", config.read_text()) == []


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(editor, text):
    found = editor.mistakes("fit", text)
    assert len(found) == 1, found
    assert found[0].startswith(WRONG[text]), found


UNKNOWN = {"twice", "optimizer", "module"}  # a reader of YAML takes the last one; a schema knows no other classes


@pytest.mark.parametrize("case", sorted(FILES.keys() - UNKNOWN - {"syntax"}))
def test_what_the_command_line_refuses_is_refused(editor, case):
    change, _ = FILES[case]
    text = GOOD.replace(*change) if isinstance(change, tuple) else f"{GOOD}{change}\n"
    assert editor.mistakes("fit", text)


def test_verbs_differ_in_what_only_one_of_them_has(editor):
    for verb in VERBS:
        assert editor.mistakes(verb, "{trainer: {devices: 1}, model: Classifier, ckpt_path: last}") == []
        assert editor.mistakes(verb, "trainer: {device: 1}") == ["trainer.device: not allowed"]
        assert bool(editor.mistakes(verb, "resume: last")) == (verb != "fit")
        assert bool(editor.mistakes(verb, "run: last")) == (verb == "fit")
        assert bool(editor.mistakes(verb, "output: a.csv")) == (verb != "predict")


@pytest.mark.parametrize("text", RIGHT_SWEEPS)
def test_sweep_files_are_accepted(editor, text):
    assert editor.mistakes("sweep", SWEEP, text) == []


@pytest.mark.parametrize("text", WRONG_SWEEPS)
def test_what_is_wrong_with_a_sweep_is_named(editor, text):
    found = editor.mistakes("sweep", SWEEP, text)
    assert len(found) == 1, found
    assert found[0].startswith(WRONG_SWEEPS[text]), found


def test_a_sweep_needs_what_the_command_needs(editor):
    needed = {"base", "metric", "space"}
    assert {line.split("'")[1] for line in editor.mistakes("sweep", "trials: 3")} == needed


def test_settings_say_what_they_are(schemas):
    trainer = schemas["fit"]["properties"]["trainer"]["properties"]
    assert "description" in trainer["max_epochs"]
    classifier = schemas["fit"]["definitions"]["litlab.tasks.classifier.Classifier()"]["properties"]
    assert classifier["members"] == {
        "type": "integer",
        "minimum": 1,
        "description": classifier["members"]["description"],
        "default": 1,
    }
    assert classifier["members"]["description"].startswith("How many networks are trained on the same batches")
    assert set(schemas["sweep"]["properties"]) == set(KEYS)
    assert all(one["description"] for one in schemas["sweep"]["properties"].values())


def test_names_are_offered_with_what_they_mean(schemas):
    definitions = schemas["fit"]["definitions"]
    callbacks = definitions["lightning.pytorch.callbacks.callback.Callback:names"]
    assert callbacks["examples"][0] == "Pictures"  # the team's first
    assert dict(zip(*callbacks["then"].values(), strict=True))["Pictures"] == "A callback with a setting."
    assert {"EMA", "EarlyStopping", "ModelSummary"} <= set(callbacks["examples"])
    networks = definitions["torch.nn.modules.module.Module:names"]["examples"]
    assert {"ThreeLayers", "auks.images.MNASNet", "torchvision.models.resnet18", "litlab.nn.pretrained"} <= set(
        networks
    )
    assert not {"SmallCNN", "Classifier", "auks.images._network"} & set(networks)  # models, and what is private


def test_the_schemas_are_valid(schemas):
    """By the rules of draft 7, which some editors apply more strictly than jsonschema: no empty or repeated choices."""
    for schema in schemas.values():
        Draft7Validator.check_schema(schema)

    def check(part):
        if isinstance(part, dict):
            choices = part.get("enum", [None])
            assert not isinstance(choices, list) or len(choices) == len({repr(one) for one in choices}) > 0
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            check(inner)

    check(schemas)


def test_a_folder_that_cannot_be_written_is_one_line(run, tmp_path):
    (tmp_path / ".vscode").write_text("")
    done = run("schema")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err
        == f"error: schema: {Path('.vscode').absolute()} is no folder that can be written to; choose another place\n"
    )
