"""``fit``, ``test`` and ``predict`` through the command line: data facts, sections, what ends
them.
"""

import os

import pytest
import torch
import yaml

from tests.conftest import BRIEF
from tests.litlab.runs.conftest import error

FACTS = {"context_length": 48, "horizon": 24, "num_targets": 1}


def test_what_a_model_must_know_of_the_data_reaches_its_checkpoint(run, folder):
    model = yaml.safe_load(folder.config.read_text())["model"]["init_args"]
    assert model == {**model, **FACTS}
    last = folder.checkpoints / "last.ckpt"
    kept = torch.load(last, weights_only=True)["hyper_parameters"]
    assert kept == {**kept, **FACTS}
    assert "weights don't fit" in error(run("test --run series --model.hidden_size=32"))


def test_sections_can_be_turned_off_and_there_may_be_no_test_split(run, images, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train").symlink_to(images / "train")
    done = run(
        """
        fit --data=ImageData --data.dataset=folder --data.path=mine --model=SmallCNN
        --model.optimizer=SGD --model.optimizer.lr=0.1 --checkpoint=null --nan_guard=null
        --vram=null --compile=null
        """,
        *BRIEF,
    ).check()
    assert all(words in done.out for words in ("epoch 1/1", "Run summary"))
    assert "FLOPs" not in done.out
    assert "There is no test split: not tested" in done.err
    assert not list((tmp_path / "lightning_logs/default/version_0").rglob("*.ckpt"))


def test_a_config_can_name_variables_of_the_environment(run, settings, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("experiment: ${MY_NAME}_${MY_NAME}\n")
    monkeypatch.setenv("MY_NAME", "mine")
    printed = run("fit", *settings, "--config=mine.yaml", "--print_config").out
    assert "experiment: mine_mine\n" in printed


def test_null_is_null_in_the_settings_of_a_class_within_a_class(run):
    line = "--model.network=litlab.nn.pretrained --model.network.name=resnet18"
    fit = f"fit --data=ImageData --model=Classifier {line} --model.network.weights=null"
    assert "\n        weights: null\n" in run(fit, "--print_config").out


@pytest.mark.parametrize(
    "command", ["fit --resume=series --trainer.max_epochs=3", "test --run=series"]
)
def test_a_bug_keeps_its_traceback_on_the_screen_and_in_the_run(run, folder, monkeypatch, command):
    def broken(*_, **__):
        raise ValueError("a bug" + os.environ["A_TOKEN"])

    monkeypatch.setenv("A_TOKEN", "hunter2x")
    for hook in ("training_step", "test_step"):
        monkeypatch.setattr(f"auks.series.SmallForecaster.{hook}", broken)
    with pytest.raises(ValueError, match="a bug") as caught:
        run(command)
    [file] = folder.path.parent.rglob("traceback.txt")
    assert f"traceback in {file.relative_to(folder.path.parents[2])}" in caught.value.__notes__
    text = file.read_text()
    assert text.startswith("Traceback (most recent call last)")
    assert "\nValueError: a bug***\n" in text


def test_what_a_library_says_while_building_is_a_line(run, settings, monkeypatch, tmp_path):
    command = ["fit", *settings, "--model.optimizer.lr=-1"]
    file = "lightning_logs/series/version_0/traceback.txt"
    line = "error: model.optimizer: Invalid learning rate: -1.0; traceback in"
    assert error(run(*command)) == f"{line} {file}"
    assert "ValueError: Invalid learning rate" in (tmp_path / file).read_text()
    monkeypatch.setenv("LITLAB_TRACEBACK", "1")
    with pytest.raises(ValueError, match="Invalid learning rate"):
        run(*command)
