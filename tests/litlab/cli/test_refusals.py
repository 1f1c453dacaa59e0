"""What the command line refuses: one line that says where and what, and nothing half-written."""

import pytest

from litlab.cli.start import register_classes
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
    "validation too late": (
        [
            "GOOD",
            "--trainer.max_steps=1",
            "--data.batch_size=8",
            "--early_stopping",
            '{"monitor": "val/acc", "mode": "max"}',
        ],
        "early_stopping.monitor: there is no 'val/acc', as trainer.max_steps=1 ended the run before its first "
        "validation; raise trainer.max_steps, lower trainer.val_check_interval, or set early_stopping: null",
    ),
    "outside": (["GOOD", "--experiment=../x"], "experiment: '../x' is not a valid folder name in lightning_logs"),
    "module": (
        ["GOOD", "--model=nomodule.Mine"],
        "--model: 'nomodule.Mine' can't be imported; there is no module 'nomodule'",
    ),
    "network": (
        ["GOOD", "--model=Classifier", "--model.network=MNASNet"],
        "there are several classes 'MNASNet'; give the path, auks.images.MNASNet or torchvision.models.MNASNet",
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
