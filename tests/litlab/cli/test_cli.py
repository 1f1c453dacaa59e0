"""The command line: help, data facts, what wins over what."""

import shutil
import subprocess
import sys

import pytest
import torch
import yaml

from tests.litlab.cli.test_refusals import GOOD
from tests.litlab.conftest import CONFIGS


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['auks', '--help']\n"
        "from litlab.cli.command import run_command; assert run_command('auks') == 0\n"
        "heavy = {'torch', 'lightning', 'jsonargparse', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for verb in ("fit", "validate", "test", "predict"):
        assert f"\n  {verb} " in done.stdout


def test_mistyped_verb_is_told_the_nearest(run):
    done = run("fitt")
    assert (done.code, done.err) == (2, "error: fitt: there is no such command; did you mean 'fit'?\n")


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_verb_help_explains_the_sections(run, verb):
    done = run(verb, "--help")
    assert done.code == 0
    for key in ("--checkpoint", "--early_stopping", "--compile", "--vram", "--experiment", "--data", "--model"):
        assert key in done.out
    assert ("--input" in done.out) == (verb == "predict")
    assert "weights_only" not in done.out


def test_class_help_is_the_docstring(run):
    done = run("fit", "--model.help", "SmallCNN")
    assert done.code == 0
    assert "Channels of the convolution" in " ".join(done.out.split())


def test_flags_alone_are_enough(run):
    data = ["--data=SeriesData", "--data.dataset=generated"]
    done = run(
        "fit", "--model=SmallForecaster", *data, "--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--check"
    )
    assert done.code == 0, done.err


def test_a_bug_keeps_its_traceback(fit_images, monkeypatch):
    from auks.images import SmallCNN

    def broken(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(SmallCNN, "configure_optimizers", broken)
    with pytest.raises(ZeroDivisionError):
        fit_images("fit")


def test_sections_can_be_turned_off(fit_images, tmp_path):
    done = fit_images(
        "fit", "--checkpoint=null", "--early_stopping=null", "--vram=null", "--compile=null", "--test_after_fit=false"
    )
    assert done.code == 0
    assert "epoch 2/2" in done.out
    assert "max_epochs" not in done.err  # it would come before that line
    folder = tmp_path / "lightning_logs/images/version_0"
    assert not list(folder.rglob("*.ckpt"))
    assert "test/acc" not in done.out
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert [config[name] for name in ("checkpoint", "early_stopping", "compile", "vram")] == [None] * 4


def test_without_a_test_split_fit_ends_well(run, images, tmp_path):
    shutil.copytree(images / "train", tmp_path / "mine/train")
    (tmp_path / "mine.yaml").write_text(GOOD)
    flags = ["--data.dataset=folder", "--data.path=mine", "--trainer.max_epochs=1", "--trainer.log_every_n_steps=1"]
    done = run("fit", "--config", "mine.yaml", *flags, "--trainer.accelerator=cpu")
    assert done.code == 0, done.err
    assert "There is no test split: not tested." in done.err


def test_what_a_model_gets_from_data_checkpoint_and_flags(fit_images, run, images, tmp_path):
    """Facts of the data reach the model and its checkpoint; what is explicit wins; another class is refused."""
    assert fit_images("fit", "--model.label_smoothing=0.1").code == 0
    folder = tmp_path / "lightning_logs/images/version_0"
    model = yaml.safe_load((folder / "config.yaml").read_text())["model"]["init_args"]
    assert (model["num_classes"], model["image_shape"]) == (10, [3, 32, 32])
    last = folder / "checkpoints/last.ckpt"
    assert torch.load(last, weights_only=True)["hyper_parameters"]["num_classes"] == 10

    done = fit_images("test", "--model=Classifier", "--model.network=torchvision.models.resnet18", "--ckpt_path", last)
    assert done.code == 2
    assert "holds a auks.images.SmallCNN; name that class" in done.err
    done = fit_images("test", "--model.width=32", "--ckpt_path", last)
    assert done.code == 2
    assert "weights don't fit it as it is described here (model.width: 16 -> 32)" in done.err
    assert "Traceback" not in done.err

    config = yaml.safe_load((CONFIGS / "images.yaml").read_text())
    config["model"] = {"class_path": "SmallCNN"}  # says nothing of the model but its class
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump(config))
    data = ["--data.dataset=folder", f"--data.path={images}", "--data.batch_size=40", "--trainer.accelerator=cpu"]
    data.append("--trainer.log_every_n_steps=1")
    further = ["--ckpt_path", last, "--trainer.max_epochs=3", "--model.label_smoothing=0.3"]
    done = run("fit", "--config", "bare.yaml", *data, *further)
    assert done.code == 0, done.err
    folder = tmp_path / "lightning_logs/images/version_1"
    model = yaml.safe_load((folder / "config.yaml").read_text())["model"]["init_args"]
    assert model["width"] == 16  # the checkpoint's
    assert model["optimizer"]["class_path"] == "torch.optim.SGD"  # the checkpoint's
    assert model["label_smoothing"] == 0.3  # the flag's
    assert "model.label_smoothing: 0.3 (the checkpoint has 0.1)" in done.out + done.err
    assert "epoch 3/3" in done.out
    assert "epoch 2/3" not in done.out
    before, after = (torch.load(path, weights_only=True) for path in (last, folder / "checkpoints/last.ckpt"))
    weights = [checkpoint["state_dict"]["network.5.weight"] for checkpoint in (before, after)]
    assert not torch.equal(*weights)  # the schedule goes on
