"""Mistakes in YAML and flags: one line that says where, what and what to do, exit code 2, and
nothing half-written.
"""

import pytest

from litlab.cli.config import Command
from tests.litlab.runs.conftest import error

GOOD = """\
model:
  class_path: SmallCNN
  init_args:
    width: 16
    optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.1}}
    schedule: {scheduler: {class_path: StepLR, init_args: {step_size: 3}}}
data:
  class_path: ImageData
  init_args: {dataset: generated}
"""
SGD = "{class_path: torch.optim.SGD, init_args: {lr: 0.1}}->"
# A mistake: flags, what is replaced in that config, or what is added to it; a part of the line; and
# the same once its advice is followed, unless that leads back to the config or to a line above.
MISTAKES = [
    # Flags
    ("--trainer.max_epoch=3", "--trainer.max_epoch=3: there is no such setting; did you mean "
     "'trainer.max_epochs'?", "--trainer.max_epochs=3"),
    ("mine.yaml ", "mine.yaml: there is no such setting; a config file follows --config",
     "--config mine.yaml"),
    ("--model.widht=8", "model.widht: SmallCNN has no 'widht'; did you mean 'width'?",
     "--model.width=8"),
    ("--model.optimiser.lr=1", "model.optimiser: SmallCNN has no 'optimiser'; did you mean "
     "'optimizer'?", "--model.optimizer.lr=1"),
    ("--data.augment.flop=random", "data.augment.flop: ImageData has no 'augment.flop'; did you "
     "mean 'augment.flip'?", "--data.augment.flip=random"),
    ("--trainer.max_epochs", "it has no value; give one, such as --trainer.max_epochs=VALUE"),
    ("--resume", "--resume: it has no value; give one, such as --resume last"),
    ("--check=3", "--check: it takes no value; leave out '=3'", "--check"),
    ("--seed_everything=-1", "seed_everything: -1 is not valid; give 0 to 4294967295",
     "--seed_everything=1"),
    ("--config nope.yaml", "nope.yaml: no such file"),
    ("--config .", "config: there is no file "),
    ("--experiment=${NOPE}", "${NOPE}: there is no such environment variable; set it, or write its "
     "value", "--experiment=mine"),
    ("--experiment=../x", "experiment: '../x'", "--experiment=x"),
    # Keys
    ("traner: {max_epochs: 3}", "mine.yaml:10: traner.max_epochs: there is no such key; did you "
     "mean 'trainer.max_epochs'?", "trainer.max_epochs: 3"),
    ("scheduler:->schduler:", ":6: model.schedule.schduler: Schedule has no 'schduler'; did"),
    ("width: 16->colour: 1", "SmallCNN has no 'colour'; it has width, num_classes, image_sh"),
    ("trainer: {callbacks: [{class_path: EMA, init_args: {decy: 0.9}}]}", ":10: trainer.callbacks."
     "decy: EMA has no 'decy'; did you mean 'decay'?",
     "trainer: {callbacks: [{class_path: EMA, init_args: {decay: 0.9}}]}"),
    ("init_args: {dataset->initargs: {dataset", ":7: data: there is no key 'initargs' beside "
     "class_path and init_args; did you mean 'init_args'?"),
    (f"{SGD}{{class_path: torch.optim.SGD, lr: 0.1}}", ":5: model.optimizer: there is no key 'lr' "
     "beside class_path and init_args; put it in init_args"),
    (f"{SGD}{{lr: 0.1}}", ":5: model.optimizer: it names no Optimizer; give class_path and"),
    ("init_args: {dataset: generated}->init_args: generated", "init_args: generated is not valid; "
     "write KEY: VALUE"),
    ("early_stopping: {}", "early_stopping: monitor is missing; add it",
     "early_stopping: {monitor: val/loss}"),
    ("trainer: 3", "trainer: it must hold settings; write KEY: VALUE, or leave it out"),
    ("trainer: null", "error: trainer: null is not valid; give it a value, or leave it out"),
    ("trainer: {max_epochs: 3", "mine.yaml:11: not valid YAML: did not find expected"),
    ("resume: last", "resume: a config file can't set it; give it as the flag --resume"),
    ("allow_modules: os", "allow_modules: a config file can't set it"),
    # Types
    ("generated->cifar", ":9: data.dataset: cifar is not valid; it must be one of 'folder', 'csv', "
     "'shards', 'gen", "generated->folder"),
    ("lr: 0.1->lr: fast", ":5: model.optimizer.lr: fast is not valid; it must be one of float, Te",
     "lr: 0.1->lr: 0.2"),
    ("--model.label_smoothing=1", "model.label_smoothing: 1 is not valid; it must be at least 0 and"
     " below 1", "--model.label_smoothing=0.1"),
    ("ema: 3", ":10: ema: 3 is not valid; give settings as KEY: VALUE, or null for none",
     "ema: {decay: 0.9}"),
    ("--data.augment={crop:2}", "can't be read as YAML; write {KEY: VALUE}, with a space",
     "data.init_args.augment: {crop: 2}"),
    # Classes
    ("SmallCNN->SmallCN", ":1: model: there is no class 'SmallCN'; did you mean 'SmallCNN'?"),
    ("compile: fast", ":10: compile: there is no class 'fast'; give its full path, or its settings "
     "as KEY: VALUE", "compile: {mode: default}"),
    ("optim.SGD->optim.SDG", ":5: model.optimizer: torch.optim has no 'SDG'; did you mean"),
    ("--model.schedule.scheduler=CosineAnealingLR", "there is no class 'CosineAnealingLR'; did you "
     "mean 'CosineAnnealingLR'?", "--model.schedule.scheduler=CosineAnnealingLR"),
    ("ImageData->SmallCNN", ":7: data: SmallCNN is not valid; it must be one of LightningData"),
    ("--model.optimizer=os.system", "model.optimizer: os.system is not valid; it must be a kind of "
     "Optimizer", "--model.optimizer=torch.optim.Adam"),
    ("SmallCNN->3", "class_path: 3 is not valid; it must be the name or path of a class"),
    ("SmallCNN->nomodule.Mine", "there is no module nomodule; install its package, or correct the "
     "path", "SmallCNN->auks.images.SmallCNN"),
    ("SmallCNN->breaks.Mine", "breaks.Mine can't be imported (no key here); python -c 'import "
     "breaks' shows where"),
]  # fmt: skip


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the config with a change, and returns the command line."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/breaks.py").write_text("raise RuntimeError('no key here')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))

    def write_change(change: str) -> list[str]:
        old, arrow, new = change.partition("->")
        flags = [] if arrow or ": " in change else change.split()
        text = GOOD.replace(old, new) if arrow else f"{GOOD}{'' if flags else change}\n"
        (tmp_path / "mine.yaml").write_text(text)
        return ["fit", "--config=mine.yaml", *flags]

    return write_change


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[0])
def test_a_mistake_is_one_line_whose_advice_works(run, write, tmp_path, case):
    mistake, says, *followed = case
    done = run(*write(mistake))
    assert says in error(done)
    assert done.err.count("error: ") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"mine.yaml", "library"}
    for change in followed:
        Command(write(change))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fit", "the following arguments are required: data, model; give --config FILE"),
        ("fit --model.width=8 --config mine.yaml", "give --config FILE or --model CLASS before it"),
        ("test --config mine.yaml", "test: there are no weights to use; give --run RUN"),
        ("fit --config mine.yaml --ckpt_path=no.ckpt", "checkpoint no.ckpt: there is no such file"),
    ],
)
def test_what_is_missing(run, write, line, says):
    write("")
    assert says in error(run(line))
