"""``fit``, ``test`` and ``predict`` through the command line: data facts, sections, what ends
them.
"""

import os

import pytest
import torch
import yaml

from tests.litlab.runs.conftest import error

FACTS = {"context_length": 48, "horizon": 24, "num_targets": 1}


def test_what_a_model_must_know_of_the_data_reaches_its_checkpoint(run, folder):
    model = yaml.safe_load(folder.config.read_text())["model"]["init_args"]
    assert model == {**model, **FACTS}
    last = folder.checkpoints / "last.ckpt"
    kept = torch.load(last, weights_only=True)["hyper_parameters"]
    assert kept == {**kept, **FACTS}
    assert "weights don't fit" in error(run("test", "--run", "series", "--model.hidden_size=32"))


def test_sections_can_be_turned_off_and_there_may_be_no_test_split(run, images, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train").symlink_to(images / "train")
    data = [
        "--data=ImageData",
        "--data.dataset=folder",
        "--data.path=mine",
        "--trainer.max_epochs=1",
    ]
    none = [f"--{section}=null" for section in ("checkpoint", "nan_guard", "vram", "compile")]
    model = [
        "--model=SmallCNN",
        "--model.optimizer=SGD",
        "--model.optimizer.lr=0.1",
        "--trainer.log_every_n_steps=1",
    ]
    done = run("fit", *data, *model, *none, "--trainer.accelerator=cpu")
    assert done.code == 0, done.err
    assert all(words in done.out for words in ("epoch 1/1", "Run summary"))
    assert "FLOPs" not in done.out
    assert "There is no test split: not tested" in done.err
    assert not list((tmp_path / "lightning_logs/default/version_0").rglob("*.ckpt"))


def test_a_config_can_name_variables_of_the_environment(run, settings, tmp_path, monkeypatch):
    config = tmp_path / "mine.yaml"
    config.write_text("experiment: ${MY_NAME}_${MY_NAME}\n")
    refused = run("fit", *settings, "--config", config, "--print_config")
    assert (refused.code, "${MY_NAME}: there is no such environment variable" in refused.err) == (
        2,
        True,
    )
    monkeypatch.setenv("MY_NAME", "mine")
    assert (
        "experiment: mine_mine\n" in run("fit", *settings, "--config", config, "--print_config").out
    )


def test_null_is_null_in_the_settings_of_a_class_within_a_class(run, settings):
    network = [
        "--model=Classifier",
        "--model.network=litlab.nn.pretrained",
        "--model.network.name=resnet18",
    ]
    done = run("fit", *settings, *network, "--model.network.weights=null", "--print_config")
    assert "\n        weights: null\n" in done.out


def test_a_fit_without_a_batch_is_no_success(run, settings):
    assert "fit: nothing was trained" in error(
        run("fit", *settings, "--trainer.max_time=00:00:00:00")
    )


@pytest.mark.parametrize(
    ("hook", "command"), [("training_step", ["fit"]), ("test_step", ["test", "--run=series"])]
)
def test_a_bug_keeps_its_traceback_on_the_screen_and_in_the_run(
    run, folder, settings, monkeypatch, hook, command
):
    from auks.series import SmallForecaster

    def broken(*_, **__):
        raise ValueError("a bug" + os.environ["A_TOKEN"])

    monkeypatch.setenv("A_TOKEN", "hunter2x")
    monkeypatch.setattr(SmallForecaster, hook, broken)
    with pytest.raises(ValueError, match="a bug") as caught:
        run(*command, *(settings if hook == "training_step" else []))
    [file] = folder.path.parent.rglob("traceback.txt")
    assert f"traceback in {file.relative_to(folder.path.parents[2])}" in caught.value.__notes__
    text = file.read_text()
    assert text.startswith("Traceback (most recent call last)")
    assert "\nValueError: a bug***\n" in text


def test_what_a_library_says_while_building_is_a_line(run, settings, monkeypatch, tmp_path):
    command = ["fit", *settings, "--model.optimizer.lr=-1"]
    place = "lightning_logs/series/version_0/traceback.txt"
    assert (
        error(run(*command))
        == f"error: model.optimizer: Invalid learning rate: -1.0; traceback in {place}"
    )
    assert "ValueError: Invalid learning rate" in (tmp_path / place).read_text()
    monkeypatch.setenv("LITLAB_TRACEBACK", "1")
    with pytest.raises(ValueError, match="Invalid learning rate"):
        run(*command)


def test_predict_needs_an_input(run, folder):
    assert "--input: it is not set" in error(run("predict", "--run", "series"))
