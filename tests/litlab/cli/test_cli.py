"""The command line: help, errors, data facts, what wins over what."""

import shutil
import subprocess
import sys

import pytest
import torch
import yaml

from litlab.cli.start import register_classes
from tests.litlab.conftest import CONFIGS
from tests.litlab.fuzz.harness import run_input

GOOD = """\
model:
  class_path: SmallCNN
  init_args:
    width: 16
    optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}
data:
  class_path: ImageData
  init_args: {dataset: generated}
"""


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['acme', '--help']\n"
        "from litlab.cli.command import run_command; assert run_command('acme') == 0\n"
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


# (change of the good config, further flags, what the one line must say after the file's name)
TYPOS = {
    "section": (
        "traner: {max_epochs: 3}\n",
        [],
        ":9: traner: there is no such key; did you mean 'trainer'?",
    ),
    "trainer key": (
        "trainer: {max_epoch: 3}\n",
        [],
        ":9: trainer.max_epoch: there is no such key; did you mean 'trainer.m",
    ),
    "trainer value": (
        "trainer: {max_epochs: three}\n",
        [],
        ":9: trainer.max_epochs: 'three' is not valid; it must be int",
    ),
    "callback": (
        "trainer: {callbacks: [{class_path: RichProgresBar}]}\n",
        [],
        ":9: trainer.callbacks.0: there is no class 'RichProgresBar'",
    ),
    "stopping": (
        "early_stopping: {monitr: a}\n",
        [],
        ":9: early_stopping.monitr: EarlyStopping has no 'monitr'; did you mean 'monitor'?",
    ),
    "missing": (
        "early_stopping: {mode: max}\n",
        [],
        ":9: early_stopping.monitor: it is not set; EarlyStopping needs it",
    ),
    "compile": ("compile: {mod: max}\n", [], ":9: compile.mod: Compile has no 'mod'; did you mean 'mode'?"),
    "checkpoint": (
        "checkpoint: {monitor: a, modus: b}\n",
        [],
        ":9: checkpoint.modus: RunCheckpoint has no 'modus'; did you mean 'mode'?",
    ),
    "syntax": ("trainer: {max_epochs: 3\n", [], ":9: not valid YAML: it ends too early"),
    "model key": (("width", "widht"), [], ":4: model.widht: SmallCNN has no 'widht'; did you mean 'width'?"),
    "model class": (("SmallCNN", "SmallCN"), [], ":2: model: there is no class 'SmallCN'; did you mean 'SmallCNN'?"),
    "data class": (("ImageData", "ImagData"), [], ":7: data: there is no class 'ImagData'; did you mean 'ImageData'?"),
    "data value": (
        ("generated", "cifar"),
        [],
        ":8: data.dataset: 'cifar' is not valid; it must be one of 'folder', 'csv', 'generated'",
    ),
    "optimizer": (("optim.SGD", "optim.SDG"), [], ":5: model.optimizer: torch.optim has no 'SDG'; did you mean 'SGD'?"),
    "optimizer key": (("lr:", "lrr:"), [], ":5: model.optimizer.lrr: SGD has no 'lrr'; did you mean 'lr'?"),
    "optimizer value": (("0.1", "fast"), [], ":5: model.optimizer.lr: 'fast' is not valid; it must be float"),
    "flag": (
        "",
        ["--trainer.max_epoch", "3"],
        "--trainer.max_epoch: there is no such key; did you mean",
    ),
    "flag value": (
        "",
        ["--trainer.max_epochs", "x"],
        "--trainer.max_epochs: 'x' is not valid; it must be int",
    ),
    "model flag": (
        "",
        ["--model.label_smothing=1"],
        "--model.label_smothing: SmallCNN has no 'label_smothing'; did you",
    ),
    "scheduler": (
        "",
        ["--model.schedule.scheduler", "CosineAnealingLR"],
        "there is no class 'CosineAnealingLR'; did you",
    ),
    "interval": (
        "",
        ["--model.schedule.scheduler=OneCycleLR", "--model.schedule.interval=steps"],
        "--model.schedule.interval: 'steps' is not valid; it must be one of 'step', 'epoch'; did you mean 'step'?",
    ),
    "forgotten flag": (
        "",
        ["configs/with/clip.yaml"],
        "a config needs --config; write --config configs/with/clip.yaml",
    ),
}


@pytest.mark.parametrize("case", TYPOS)
def test_typos_get_one_line_that_says_where_and_what(tmp_path, case):
    change, flags, says = TYPOS[case]
    text = GOOD.replace(*change) if isinstance(change, tuple) else GOOD + change
    assert text != GOOD or flags
    config = tmp_path / "mine.yaml"
    config.write_text(text)
    register_classes()
    ending = run_input(["fit", "--config", str(config), *flags], tmp_path)
    assert ending.kind == "line", ending
    assert (f"{config}{says}" if says.startswith(":") else says) in ending.text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.yaml"]  # nothing half-written


# What only shows when things are built: (flags, what the one line says)
REFUSED = {
    "no config": ([], "data and model: not set; give --config FILE"),
    "config file": (["--config", "configs/cifr.yaml"], "error: configs/cifr.yaml: no such file"),
    "checkpoint": (["GOOD", "--ckpt_path", "nope.ckpt"], "checkpoint nope.ckpt: no such file."),
    "remote": (["GOOD", "--ckpt_path", "https://example.org/a.ckpt"], "it is remote; download it"),
    "not a checkpoint": (
        ["GOOD", "--ckpt_path", "mine.yaml"],
        "checkpoint mine.yaml: it is damaged or not a checkpoint",
    ),
    "learning rate": (["GOOD", "--model.optimizer.lr=-1"], "model.optimizer.lr: -1.0 is not valid; it must be above 0"),
    "width": (["GOOD", "--model.width=0"], "model.width: 0 is not valid; it must be 4 or more"),
    "smoothing": (
        ["GOOD", "--model.label_smoothing=1"],
        "--model.label_smoothing: 1 is not valid; it must be at least 0 and below 1",
    ),
    "strategy": (["GOOD", "--trainer.strategy=dpp"], "trainer: You selected an invalid strategy name"),
    "precision": (["GOOD", "--trainer.precision=17"], "--trainer.precision: 17 is not valid; it must be"),
    "monitor": (
        ["GOOD", "--early_stopping", '{"monitor": "val/accuracy"}'],
        "early_stopping.monitor: no metric 'val/accuracy' is logged; did you mean 'val/acc'?",
    ),
    "plateau": (
        ["GOOD", "--model.schedule.scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau"],
        "model.schedule.monitor: it is not set",
    ),
    "scheduler argument": (
        ["GOOD", "--model.schedule.scheduler=StepLR"],
        "model.schedule.scheduler: 'step_size' is not set; it is required",
    ),
    "no validation": (
        ["GOOD", "--trainer.limit_val_batches=0", "--early_stopping", '{"monitor": "val/acc", "mode": "max"}'],
        "early_stopping.monitor: 'val/acc' is not logged, as nothing was validated; set",
    ),
    "outside": (["GOOD", "--experiment=../x"], "experiment: '../x' is not a valid folder name in lightning_logs"),
    "module": (
        ["GOOD", "--model=nomodule.Mine"],
        "--model: 'nomodule.Mine' can't be imported; there is no module 'nomodule'",
    ),
    "network": (
        ["GOOD", "--model=Classifier", "--model.network=MNASNet"],
        "there are several classes 'MNASNet'; give the path, acme.images.MNASNet or torchvision.models.MNASNet",
    ),
    "worst": (["GOOD", "--checkpoint.monitor=val/f1"], "checkpoint.mode: a higher val/f1 is better; set max"),
    "checkpoint mode": (["GOOD", '--checkpoint={"monitor": "val/acc", "mode": "up"}'], "mode"),
    "endless": (
        [
            "GOOD",
            "--model.schedule.scheduler=CosineAnnealingLR",
            "--trainer.max_epochs=-1",
            "--trainer.limit_train_batches=1",
        ],
        "T_max can't be taken from a run without an end",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_line(run, tmp_path, images, case):
    flags, says = REFUSED[case]
    (tmp_path / "mine.yaml").write_text(GOOD)
    good = [
        "--config",
        "mine.yaml",
        "--trainer.max_epochs=1",
        "--trainer.log_every_n_steps=1",
        "--data.dataset=folder",
        f"--data.path={images}",
        "--trainer.accelerator=cpu",
    ]
    done = run("fit", *[part for flag in flags for part in (good if flag == "GOOD" else [flag])])
    assert done.code == 2
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    assert says in errors[0]
    assert "Traceback" not in done.err


def test_a_config_elsewhere_is_named_rightly(run, tmp_path, monkeypatch):
    """jsonargparse reads a config from inside its folder: relative paths of the others must not break."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here/good.yaml").write_text(GOOD)
    (tmp_path / "there.yaml").write_text("trainer: {callbacks: [{class_path: EMAA}]}\n")
    monkeypatch.chdir(tmp_path / "here")
    done = run("fit", "--config", "good.yaml", "--config", "../there.yaml")
    assert done.err == "error: ../there.yaml:1: trainer.callbacks.0: there is no class 'EMAA'; did you mean 'EMA'?\n"


def test_flags_alone_are_enough(run):
    data = ["--data=SeriesData", "--data.dataset=generated"]
    done = run(
        "fit", "--model=SmallForecaster", *data, "--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--check"
    )
    assert done.code == 0, done.err


def test_a_bug_keeps_its_traceback(fit_images, monkeypatch):
    from acme.images import SmallCNN

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
    assert "holds a acme.images.SmallCNN; name that class" in done.err
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
