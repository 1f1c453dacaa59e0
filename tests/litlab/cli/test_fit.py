"""``fit``, ``test`` and ``predict`` through the command line: data facts, sections, what ends them."""

import shutil

import pytest
import torch
import yaml

from tests.litlab.cli.test_messages import GOOD

RUN = "lightning_logs/images/version_0"


def test_what_a_model_must_know_of_the_data_reaches_its_checkpoint(fit_images, tmp_path):
    assert fit_images("fit").code == 0
    model = yaml.safe_load((tmp_path / RUN / "config.yaml").read_text())["model"]["init_args"]
    assert (model["num_classes"], model["image_shape"]) == (10, [3, 32, 32])
    last = tmp_path / RUN / "checkpoints/last.ckpt"
    assert torch.load(last, weights_only=True)["hyper_parameters"]["num_classes"] == 10
    done = fit_images("test", "--model.width=32", "--ckpt_path", last)
    assert done.code == 2
    assert "weights don't fit" in done.err
    assert "Traceback" not in done.err


def test_sections_can_be_turned_off(fit_images, tmp_path):
    done = fit_images("fit", "--checkpoint=null", "--vram=null", "--compile=null", "--test_after_fit=false")
    assert done.code == 0, done.err
    assert "epoch 2/2" in done.out
    assert "test/acc" not in done.out
    assert not list((tmp_path / RUN).rglob("*.ckpt"))


def test_without_a_test_split_fit_ends_well(run, images, tmp_path):
    shutil.copytree(images / "train", tmp_path / "mine/train")
    (tmp_path / "mine.yaml").write_text(GOOD)
    flags = ["--data.dataset=folder", "--data.path=mine", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
    done = run("fit", "--config", "mine.yaml", *flags, "--trainer.accelerator=cpu")
    assert done.code == 0, done.err
    assert "There is no test split: not tested" in done.err


def test_a_fit_without_a_batch_is_no_success(fit_images):
    done = fit_images("fit", "--trainer.max_time=00:00:00:00")
    assert done.code == 2
    assert "error: fit: nothing was trained" in done.err


@pytest.mark.parametrize("hook", ["training_step", "test_step"])
def test_a_bug_keeps_its_traceback_on_the_screen_and_in_the_run(fit_images, monkeypatch, tmp_path, hook):
    from auks.images import SmallCNN

    def broken(*_, **__):
        raise ValueError("a bug")

    command = ["fit"]
    if hook == "test_step":
        assert fit_images("fit", "--trainer.max_epochs=1", "--test_after_fit=false").code == 0
        command = ["test", "--run", "images"]
    monkeypatch.setattr(SmallCNN, hook, broken)
    with pytest.raises(ValueError, match="a bug") as error:
        fit_images(*command)
    assert f"traceback in {RUN}/traceback.txt" in error.value.__notes__
    text = (tmp_path / RUN / "traceback.txt").read_text()
    assert text.startswith("Traceback (most recent call last)")
    assert 'raise ValueError("a bug")\nValueError: a bug\n' in text


def test_what_a_library_says_while_building_is_a_line(fit_images, monkeypatch, tmp_path):
    done = fit_images("fit", "--model.optimizer.lr=-1")
    assert done.code == 2
    assert f"error: model.optimizer: Invalid learning rate: -1.0; traceback in {RUN}/traceback.txt\n" in done.err
    assert "ValueError: Invalid learning rate" in (tmp_path / RUN / "traceback.txt").read_text()
    monkeypatch.setenv("LITLAB_TRACEBACK", "1")
    with pytest.raises(ValueError, match="Invalid learning rate"):
        fit_images("fit", "--model.optimizer.lr=-1")


def test_predictions_replace_predictions_and_nothing_else(fit_images, run, images, tmp_path):
    assert fit_images("fit", "--trainer.max_epochs=1").code == 0
    command = ["predict", "--run", "images", "--input", images / "test"]
    for _ in range(2):
        done = run(*command, "--output", "new/predictions.csv")
        assert done.code == 0, done.err
    assert "--input: it is not set" in run("predict", "--run", "images").err
    (tmp_path / "mine.csv").write_text("file,label\na.png,cat\n")
    (tmp_path / "new.csv").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "new/predictions.csv")
    for name in ("mine.csv", "link.csv", "new.csv"):
        done = run(*command, "--output", name)
        assert done.code == 2
        assert f"{name} exists and does not hold predictions; choose another file" in done.err
