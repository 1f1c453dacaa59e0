"""The message for settings that the parser refuses: one line for each mistake in a flag or file."""

import pytest
from auks.series import SmallForecaster

from litlab.cli.class_paths import find_class
from litlab.cli.diagnosis import Diagnosis
from litlab.cli.start import register_classes
from litlab.cli.trust import Trust
from litlab.errors import UserError
from litlab.tasks import Forecaster
from litlab.util.yaml_files import check
from tests.litlab.fuzz.harness import run_input, verb_parser

GOOD = """\
model:
  class_path: SmallForecaster
  init_args:
    hidden_size: 8
    optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.01}}
data: {class_path: SeriesData, init_args: {dataset: generated, targets: [sine], context_length: 24, horizon: 6}}
trainer: {accelerator: cpu, logger: false, callbacks: [{class_path: Pictures}]}
"""

FLAGS = {
    # lists and blocks
    "--trainer.callbacks=[{class_path: EMAA}]": "--trainer.callbacks.0: there is no class 'EMAA'; did you mean 'EMA'?",
    "--trainer.callbacks=[EMMA]": "--trainer.callbacks.0: there is no class 'EMMA'; did you mean 'EMA'?",
    "--trainer.callbacks+=EMMA": "--trainer.callbacks+: there is no class 'EMMA'; did you mean 'EMA'?",
    "--trainer.callbacks+={class_path: EMA, init_args: {dcay: 1}}":
        "--trainer.callbacks.dcay: EMA has no 'dcay'; did you mean 'decay'?",
    "--trainer.callbacks=[{class_path: EarlyStopping, init_args: {monitor: x, patience: a}}]":
        "--trainer.callbacks.0.patience: 'a' is not valid; it must be int",
    "--trainer.callbacks=[{class_path: EarlyStopping}]":
        "--trainer.callbacks.0.monitor: it is not set; EarlyStopping needs it",
    "--trainer.callbacks=[{monitor: x}]":
        "--trainer.callbacks.0: there is no class_path; write {class_path: NAME, init_args: {...}} of a Callback",
    "--trainer.callbacks={EMA: {decay: 0.9}}":
        "--trainer.callbacks: there is no class_path; write {class_path: NAME, init_args: {...}} of a Callback",
    "--trainer.callbacks=[5]":
        "--trainer.callbacks.0: 5 is not valid; it must be a Callback (class_path and init_args)",
    "--trainer.callbacks=[{class_path: EMA":
        "--trainer.callbacks: not valid YAML: it ends too early; close every bracket and quote",
    "--trainer.callbacks.hiden_size=5": "--trainer.callbacks.hiden_size: Pictures has no 'hiden_size'",
    "--model.optimizer={class_path: SDG}": "--model.optimizer: there is no class 'SDG'; did you mean 'SGD'?",
    "--model.optimizer={class_path: torch.optim.SGD, lr: 1}":
        "--model.optimizer.lr: it is next to class_path; move it into init_args",
    "--model.optimizer={class_path: null}":
        "--model.optimizer.class_path: null is not valid; it must be the name of an Optimizer",
    "--model.optimizer=[SGD]":
        "--model.optimizer: ['SGD'] is not valid; it must be an Optimizer (class_path and init_args)",
    "--model.optimizer=torchvision.models.resnet18":
        "--model.optimizer: 'torchvision.models.resnet18' is not an Optimizer, nor annotated to return one",
    "--model.optimizer=torch.nn.Linear": "--model.optimizer: 'torch.nn.Linear' is not an Optimizer",
    "--model.optimizer=os.system":
        "--model.optimizer: 'os.system' can't be named in a config; it could run commands, load code or change files",
    "--model.schedule={}": "--model.schedule.scheduler: it is not set; Schedule needs it",
    "--model.schedule=5": "--model.schedule: 5 is not valid; it must be the settings of Schedule",
    "--model.schedule.scheduler=StepLRR":
        "--model.schedule.scheduler: there is no class 'StepLRR'; did you mean 'StepLR'?",
    # names
    "--modle.hidden_size=3": "--modle.hidden_size: there is no such key; did you mean 'model.hidden_size'?",
    "--model.hiden_size=3": "--model.hiden_size: SmallForecaster has no 'hiden_size'; did you mean 'hidden_size'?",
    "--model.HIDDEN_SIZE=3": "--model.HIDDEN_SIZE: SmallForecaster has no 'HIDDEN_SIZE'; did you mean 'hidden_size'?",
    "--model=SmallForcaster": "--model: there is no class 'SmallForcaster'; did you mean 'SmallForecaster'?",
    "--data=SeriesDta": "--data: there is no class 'SeriesDta'; did you mean 'SeriesData'?",
    "--batch_size=3": "--batch_size: there is no such key; did you mean 'data.batch_size'?",
    "--model.batch_size=3": "--model.batch_size: SmallForecaster has no 'batch_size'; did you mean 'data.batch_size'?",
    "--trainer.batch_size=3": "--trainer.batch_size: there is no such key; did you mean 'data.batch_size'?",
    "--lr=3": "--lr: there is no such key; did you mean 'model.optimizer.lr'?",
    "--max_epochs=3": "--max_epochs: there is no such key; did you mean 'trainer.max_epochs'?",
    # values
    "--model.optimizer.lr=1,5": "--model.optimizer.lr: '1,5' is not valid; it must be float, such as 1.5",
    "--model.optimizer.lr=10%": "--model.optimizer.lr: '10%' is not valid; it must be float, such as 0.1",
    "--model.optimizer.lr=": "--model.optimizer.lr: '' is not valid; it must be float",
    "--model.hidden_size=1,234.00": "--model.hidden_size: '1,234.00' is not valid; it must be int, such as 1234",
    "--model.hidden_size=1.0": "--model.hidden_size: 1.0 is not valid; it must be int, such as 1",
    "--model.hidden_size=1e2": "--model.hidden_size: 1e2 is not valid; it must be int, such as 100",
    "--model.hidden_size=null": "--model.hidden_size: null is not valid; it must be int",
    "--model.activation=RELU":
        "--model.activation: 'RELU' is not valid; it must be one of 'tanh', 'relu'; did you mean 'relu'?",
    "--test_after_fit=ja": "--test_after_fit: 'ja' is not valid; it must be bool",
    "--test_after_fit=1": "--test_after_fit: 1 is not valid; it must be bool, such as true",
    "--data.targets=a,b": "--data.targets: 'a,b' is not valid; it must be a list of str, such as [a, b]",
    "--data.targets=[1]": "--data.targets.0: 1 is not valid; it must be str",
    "--trainer=5": "--trainer: 5 is not valid; it must be a block of settings",
    "--trainer.limit_train_batches=x": "--trainer.limit_train_batches: 'x' is not valid; it must be int or float",
    "--trainer.logger=TensorBoardLoger":
        "--trainer.logger: there is no class 'TensorBoardLoger'; did you mean 'TensorBoardLogger'?",
    "--compile=maybe": "--compile: 'maybe' is not valid; it must be the settings of Compile",
}  # fmt: skip
FILES = {
    "trainer:\n  callbacks:\n    EMA: {decay: 0.9}\n":
        "over.yaml:3: trainer.callbacks: there is no class_path; "
        "write {class_path: NAME, init_args: {...}} of a Callback",
    "trainer:\n": "over.yaml:1: trainer: null is not valid; it must be a block of settings",
    "model: []\n": "over.yaml:1: model: [] is not valid; it must be a LightningModule (class_path and init_args)",
    "model:\n  init_args: 5\n": "over.yaml:2: model.init_args: 5 is not valid; it must be a block of settings",
    "model:\n  class_path:\n":
        "over.yaml:2: model.class_path: null is not valid; it must be the name of a LightningModule",
    "model:\n  init_args:\n    hiddne_size: 3\n":
        "over.yaml:3: model.hiddne_size: SmallForecaster has no 'hiddne_size'; did you mean 'hidden_size'?",
    "model: {class_path: Classifier}\n": "over.yaml:1: model.network: it is not set; Classifier needs it",
    "model:\n  init_args:\n    optimizer:\n      init_args:\n        lr: 1,5\n":
        "over.yaml:5: model.optimizer.lr: '1,5' is not valid; it must be float, such as 1.5",
    "model:\n  init_args:\n    schedule:\n      scheduler: StepLR\n      interval: stpe\n":
        "over.yaml:5: model.schedule.interval: 'stpe' is not valid; it must be one of 'step', 'epoch'; "
        "did you mean 'step'?",
    "trainer:\n  callbacks+:\n  - class_path: EMA\n  - class_path: EMMA\n":
        "over.yaml:4: trainer.callbacks.1: there is no class 'EMMA'; did you mean 'EMA'?",
    "check: maybe\n": "over.yaml:1: check: 'maybe' is not valid; it must be bool",
}  # fmt: skip
LINES = {  # through the whole command: (command line, the line)
    "flag": (
        ["GOOD", "--modle.hidden_size=3"],
        "--modle.hidden_size: there is no such key; did you mean 'model.hidden_size'?",
    ),
    "block": (
        ["GOOD", "--trainer.callbacks+={class_path: EMA, init_args: {dcay: 1}}"],
        "--trainer.callbacks.dcay: EMA has no 'dcay'; did you mean 'decay'?",
    ),
    "empty": (["GOOD", "--init_from="], "init_from: it is empty; give it a value, or leave it out"),
    "empty in a file": (["GOOD", "--config", "empty.yaml"], "init_from: it is empty; give it a value, or leave it out"),
    "null": (["GOOD", "--model.hidden_size=null"], "--model.hidden_size: null is not valid; it must be int"),
    "no value": (
        ["GOOD", "--model.optimizer.lr"],
        "--model.optimizer.lr: no value given; write --model.optimizer.lr VALUE",
    ),
    "value with a dash": (
        ["GOOD", "--trainer.max_time", "-1:0:0"],
        "--trainer.max_time: the value begins with a dash; write --trainer.max_time=-1:0:0",
    ),
    "not a number": (
        ["GOOD", "--model.optimizer.lr=nan"],
        "--model.optimizer.lr: 'nan' is not valid; it must be float, such as .nan",
    ),
    "no config": (["GOOD", "--config"], "--config: no value given; write --config VALUE"),
    "no flag": (
        ["configs/images.yaml"],
        "configs/images.yaml: a config needs --config; write --config configs/images.yaml",
    ),
    "one dash": (
        ["GOOD", "-model.hidden_size=3"],
        "-model.hidden_size=3: flags begin with two dashes; write --model.hidden_size=3",
    ),
    "no dash": (
        ["GOOD", "model.hidden_size=3"],
        "model.hidden_size=3: flags begin with two dashes; write --model.hidden_size=3",
    ),
    "value too many": (["GOOD", "--check", "yes"], "yes: it follows no flag that takes a value; remove it"),
    "value for a switch": (["GOOD", "--check=yes"], "--check: it takes no value; remove the value"),
    "anchor by flag": (
        ["GOOD", "--trainer.callbacks", "&a [*a]"],
        "--trainer.callbacks: 0: the anchor contains itself; remove one of the two",
    ),
    "deep by flag": (
        ["GOOD", "--trainer.callbacks", "[" * 5000],
        "--trainer.callbacks: more than 50 levels of nesting; use fewer",
    ),
    "key twice by flag": (
        ["GOOD", "--model.optimizer", "{a: 1, a: 2}"],
        "--model.optimizer: a: the key is there twice, first in line 1; keep one",
    ),
    "inline config": (
        ["--config", "{trainer: {max_epoch: 3}}"],
        "--config: trainer.max_epoch: there is no such key; did you",
    ),
    "loop": (["--config", "loop.yaml"], "loop.yaml: config: there is no such key; did you mean 'base'?"),
    "part": (
        ["GOOD", "--model", "part.yaml"],
        "part.yaml:2: model.hiddne_size: SmallForecaster has no 'hiddne_size'; did you mean",
    ),
    "part of a section": (
        ["GOOD", "--trainer", "trainer.yaml"],
        "trainer.yaml:1: trainer.max_epoch: there is no such key; did",
    ),
    "damaged part": (
        ["GOOD", "--model", "self.yaml"],
        "self.yaml:1: init_args.hidden_size: the anchor contains itself",
    ),
    "help": (
        ["GOOD", "--model.help=SmallForcaster"],
        "there is no class 'SmallForcaster'; did you mean 'SmallForecaster'?",
    ),
}


@pytest.fixture(scope="module")
def parser():
    register_classes()
    return verb_parser("fit")


@pytest.fixture(autouse=True)
def _own_config():
    Trust().enforce()


def mistake(look, *at, then) -> str:
    try:
        look(*at)
        then()
    except UserError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize("flag", FLAGS)
def test_flags(parser, flag):
    diagnosis = Diagnosis(parser)
    diagnosis.file("mine.yaml", check(GOOD, "mine.yaml"))
    name, _, value = flag.replace("+=", "+ =").partition("=") if "+=" in flag else flag.partition("=")
    assert mistake(diagnosis.flag, name.strip(), value, then=diagnosis.complete) == FLAGS[flag]


@pytest.mark.parametrize("text", FILES)
def test_files(parser, text):
    diagnosis = Diagnosis(parser)
    diagnosis.file("mine.yaml", check(GOOD, "mine.yaml"))
    root = check(text, "over.yaml")
    assert mistake(diagnosis.file, "over.yaml", root, then=diagnosis.complete) == FILES[text]


@pytest.mark.parametrize(
    "flags", [[], ["--trainer.callbacks+=EMA"], ["--model.optimizer=SGD", "--model.optimizer.lr=1e-3"], ["--ema={}"]]
)
def test_nothing_is_said_of_what_is_right(parser, flags):
    diagnosis = Diagnosis(parser)
    diagnosis.file("mine.yaml", check(GOOD, "mine.yaml"))
    for flag in flags:
        diagnosis.flag(*flag.split("=", 1))
    diagnosis.complete()


def test_copies_that_tracing_makes_are_not_the_class(parser):
    """torch.fx makes subclasses with the name and the module of what it traces, and leaves them to the collector."""
    like = {"__module__": SmallForecaster.__module__, "__qualname__": "SmallForecaster", "__init__": lambda self: None}
    copies = [type("SmallForecaster", (SmallForecaster,), like) for _ in range(20)]
    assert find_class("SmallForecaster", Forecaster) is SmallForecaster, f"and none of {len(copies)} copies"


@pytest.mark.parametrize("case", LINES)
def test_the_line_of_the_command(parser, tmp_path, case):
    flags, says = LINES[case]
    (tmp_path / "mine.yaml").write_text(GOOD)
    (tmp_path / "empty.yaml").write_text("init_from: ''\n")
    (tmp_path / "loop.yaml").write_text("config: loop.yaml\n")
    (tmp_path / "part.yaml").write_text("init_args:\n  hiddne_size: 3\n")
    (tmp_path / "trainer.yaml").write_text("max_epoch: 3\n")
    (tmp_path / "self.yaml").write_text("init_args: &a {hidden_size: *a}\n")
    ending = run_input(
        ["fit", *(p for f in flags for p in (["--config", "mine.yaml"] if f == "GOOD" else [f]))], tmp_path
    )
    assert ending.kind == "line", ending
    assert ending.text.startswith(f"error: {says}") or (case == "help" and says in ending.text)


def test_a_config_in_utf_16_is_read(parser, tmp_path):
    (tmp_path / "mine.yaml").write_bytes(GOOD.encode("utf-16"))
    assert run_input(["fit", "--config", "mine.yaml"], tmp_path).kind == "ok"
