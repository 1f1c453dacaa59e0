"""What is said of settings that the parser refuses: flags and files, one line each."""

import pytest

from litlab.cli.diagnosis import Diagnosis
from litlab.cli.start import register_classes
from litlab.cli.trust import Trust
from litlab.errors import UserError
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
    "--trainer.callbacks=[{class_path: EMAA}]": "there is no class 'EMAA': did you mean 'EMA'?",
    "--trainer.callbacks=[EMMA]": "there is no class 'EMMA': did you mean 'EMA'?",
    "--trainer.callbacks+=EMMA": "there is no class 'EMMA': did you mean 'EMA'?",
    "--trainer.callbacks+={class_path: EMA, init_args: {dcay: 1}}": "EMA has no 'dcay': did you mean 'decay'?",
    "--trainer.callbacks=[{class_path: EarlyStopping, init_args: {monitor: x, patience: a}}]":
        "'trainer.callbacks.0.patience' must be int, not 'a'.",
    "--trainer.callbacks=[{class_path: EarlyStopping}]": "EarlyStopping needs 'monitor'.",
    "--trainer.callbacks=[{monitor: x}]": "'trainer.callbacks.0' has no class_path: write {class_path: NAME,",
    "--trainer.callbacks={EMA: {decay: 0.9}}": "'trainer.callbacks' has no class_path: write {class_path: NAME,",
    "--trainer.callbacks=[5]": "'trainer.callbacks.0' must be a Callback (class_path and init_args), not '5'.",
    "--trainer.callbacks=[{class_path: EMA": "not valid YAML: it ends too early",
    "--trainer.callbacks.widht=5": "Pictures has no 'widht'",
    "--model.optimizer={class_path: SDG}": "there is no class 'SDG': did you mean 'SGD'?",
    "--model.optimizer={class_path: torch.optim.SGD, lr: 1}":
        "'model.optimizer.lr' stands beside class_path: put it into init_args.",
    "--model.optimizer={class_path: null}": "'model.optimizer.class_path' must be the name of an Optimizer, not",
    "--model.optimizer=[SGD]": "'model.optimizer' must be an Optimizer (class_path and init_args), not a list.",
    "--model.optimizer=torchvision.models.resnet18": "'torchvision.models.resnet18' is not known to return any",
    "--model.optimizer=torch.nn.Linear": "'torch.nn.Linear' is no Optimizer, which is needed here.",
    "--model.optimizer=os.system": "'os.system' can't be named in a config: it could run commands",
    "--model.schedule={}": "Schedule needs 'scheduler'.",
    "--model.schedule=5": "'model.schedule' must be the settings of Schedule, not '5'.",
    "--model.schedule.scheduler=StepLRR": "there is no class 'StepLRR': did you mean 'StepLR'?",
    # names
    "--modle.hidden_size=3": "there is no key 'modle.hidden_size': did you mean 'model.hidden_size'?",
    "--model.hiden_size=3": "SmallForecaster has no 'hiden_size': did you mean 'hidden_size'?",
    "--model.HIDDEN_SIZE=3": "SmallForecaster has no 'HIDDEN_SIZE': did you mean 'hidden_size'?",
    "--model=SmallForcaster": "there is no class 'SmallForcaster': did you mean 'SmallForecaster'?",
    "--data=SeriesDta": "there is no class 'SeriesDta': did you mean 'SeriesData'?",
    "--batch_size=3": "there is no key 'batch_size': did you mean 'data.batch_size'?",
    "--model.batch_size=3": "SmallForecaster has no 'batch_size': did you mean 'data.batch_size'?",
    "--trainer.batch_size=3": "there is no key 'trainer.batch_size': did you mean 'data.batch_size'?",
    "--lr=3": "there is no key 'lr': did you mean 'model.optimizer.lr'?",
    "--max_epochs=3": "there is no key 'max_epochs': did you mean 'trainer.max_epochs'?",
    # values
    "--model.optimizer.lr=1,5": "'model.optimizer.lr' must be float, not '1,5': write 1.5.",
    "--model.optimizer.lr=10%": "'model.optimizer.lr' must be float, not '10%': write 0.1.",
    "--model.optimizer.lr=": "'model.optimizer.lr' must be float, not ''.",
    "--model.hidden_size=1,234.00": "'model.hidden_size' must be int, not '1,234.00': write 1234.",
    "--model.hidden_size=1.0": "'model.hidden_size' must be int, not '1.0': write 1.",
    "--model.hidden_size=1e2": "'model.hidden_size' must be int, not '1e2': write 100.",
    "--model.hidden_size=null": "'model.hidden_size' must be int, not null.",
    "--model.activation=RELU":
        "'model.activation' must be one of 'tanh', 'relu', not 'RELU': did you mean 'relu'?",
    "--test_after_fit=ja": "'test_after_fit' must be bool, not 'ja'.",
    "--test_after_fit=1": "'test_after_fit' must be bool, not '1': write true.",
    "--data.targets=a,b": "'data.targets' must be a list of str, not 'a,b': write [a, b].",
    "--data.targets=[1]": "'data.targets.0' must be str, not '1'.",
    "--trainer=5": "'trainer' must be a block of settings, not '5'.",
    "--trainer.limit_train_batches=x": "'trainer.limit_train_batches' must be int or float, not 'x'.",
    "--trainer.logger=TensorBoardLoger": "there is no class 'TensorBoardLoger': did you mean 'TensorBoardLogger'?",
    "--compile=maybe": "'compile' must be the settings of Compile, not 'maybe'.",
}  # fmt: skip
FILES = {
    "trainer:\n  callbacks:\n    EMA: {decay: 0.9}\n": "over.yaml:3: 'trainer.callbacks' has no class_path",
    "trainer:\n": "over.yaml:1: 'trainer' must be a block of settings, not null.",
    "model: []\n": "over.yaml:1: 'model' must be a LightningModule (class_path and init_args), not a list.",
    "model:\n  init_args: 5\n": "over.yaml:2: 'model.init_args' must be a block of settings, not '5'.",
    "model:\n  class_path:\n": "over.yaml:2: 'model.class_path' must be the name of a LightningModule, not null.",
    "model:\n  init_args:\n    hiddne_size: 3\n": 
        "over.yaml:3: SmallForecaster has no 'hiddne_size': did you mean 'hidden_size'?",
    "model: {class_path: Classifier}\n": "over.yaml:1: Classifier needs 'network'.",
    "model:\n  init_args:\n    optimizer:\n      init_args:\n        lr: 1,5\n":
        "over.yaml:5: 'model.optimizer.lr' must be float, not '1,5': write 1.5.",
    "model:\n  init_args:\n    schedule:\n      scheduler: StepLR\n      interval: stpe\n":
        "over.yaml:5: 'model.schedule.interval' must be one of 'step', 'epoch', not 'stpe': did you mean 'step'?",
    "trainer:\n  callbacks+:\n  - class_path: EMA\n  - class_path: EMMA\n": "over.yaml:4: there is no class 'EMMA'",
    "check: maybe\n": "over.yaml:1: 'check' must be bool, not 'maybe'.",
}  # fmt: skip
LINES = {  # through the whole command: (command line, the line)
    "flag": (
        ["GOOD", "--modle.hidden_size=3"],
        "--modle.hidden_size: there is no key 'modle.hidden_size': did you mean 'model.hidden_size'?",
    ),
    "block": (
        ["GOOD", "--trainer.callbacks+={class_path: EMA, init_args: {dcay: 1}}"],
        "--trainer.callbacks+: EMA has no 'dcay': did you mean 'decay'?",
    ),
    "empty": (["GOOD", "--init_from="], "init_from: it is empty: give a value, or leave it out."),
    "empty in a file": (["GOOD", "--config", "empty.yaml"], "init_from: it is empty: give a value, or leave it out."),
    "null": (["GOOD", "--model.hidden_size=null"], "--model.hidden_size: 'model.hidden_size' must be int, not null."),
    "no value": (["GOOD", "--model.optimizer.lr"], "--model.optimizer.lr: it needs a value."),
    "value with a dash": (
        ["GOOD", "--trainer.max_time", "-1:0:0"],
        "--trainer.max_time: it needs a value: write --trainer.max_time=-1:0:0.",
    ),
    "not a number": (
        ["GOOD", "--model.optimizer.lr=nan"],
        "--model.optimizer.lr: 'model.optimizer.lr' must be float, not 'nan': write .nan.",
    ),
    "no config": (["GOOD", "--config"], "--config: it needs a value."),
    "no flag": (
        ["configs/images.yaml"],
        "configs/images.yaml: a config needs --config: write --config configs/images.yaml.",
    ),
    "one dash": (
        ["GOOD", "-model.hidden_size=3"],
        "-model.hidden_size=3: flags have two dashes: write --model.hidden_size=3.",
    ),
    "no dash": (
        ["GOOD", "model.hidden_size=3"],
        "model.hidden_size=3: flags begin with two dashes: write --model.hidden_size=3.",
    ),
    "value too many": (["GOOD", "--check", "yes"], "yes: it belongs to no flag."),
    "value for a switch": (["GOOD", "--check=yes"], "--check: it takes no value."),
    "anchor by flag": (["GOOD", "--trainer.callbacks", "&a [*a]"], "--trainer.callbacks: 0: the anchor holds itself."),
    "deep by flag": (
        ["GOOD", "--trainer.callbacks", "[" * 5000],
        "--trainer.callbacks: more than 50 blocks inside each",
    ),
    "key twice by flag": (
        ["GOOD", "--model.optimizer", "{a: 1, a: 2}"],
        "--model.optimizer: the key 'a' is there twice",
    ),
    "inline config": (
        ["--config", "{trainer: {max_epoch: 3}}"],
        "--config: there is no key 'trainer.max_epoch': did you",
    ),
    "loop": (["--config", "loop.yaml"], "loop.yaml: the configs name each other, without end."),
    "part": (
        ["GOOD", "--model", "part.yaml"],
        "part.yaml:2: SmallForecaster has no 'hiddne_size': did you mean 'hidden_size'?",
    ),
    "part of a section": (["GOOD", "--trainer", "trainer.yaml"], "trainer.yaml:1: there is no key 'trainer.max_epoch'"),
    "damaged part": (["GOOD", "--model", "self.yaml"], "self.yaml:1: init_args.hidden_size: the anchor holds itself."),
    "help": (
        ["GOOD", "--model.help=SmallForcaster"],
        "there is no class 'SmallForcaster': did you mean 'SmallForecaster'?",
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
    assert mistake(diagnosis.flag, name.strip(), value, then=diagnosis.complete).startswith(
        f"{name.strip()}: {FLAGS[flag]}"
    )


@pytest.mark.parametrize("text", FILES)
def test_files(parser, text):
    diagnosis = Diagnosis(parser)
    diagnosis.file("mine.yaml", check(GOOD, "mine.yaml"))
    root = check(text, "over.yaml")
    assert mistake(diagnosis.file, "over.yaml", root, then=diagnosis.complete).startswith(FILES[text])


@pytest.mark.parametrize(
    "flags", [[], ["--trainer.callbacks+=EMA"], ["--model.optimizer=SGD", "--model.optimizer.lr=1e-3"], ["--ema={}"]]
)
def test_nothing_is_said_of_what_is_right(parser, flags):
    diagnosis = Diagnosis(parser)
    diagnosis.file("mine.yaml", check(GOOD, "mine.yaml"))
    for flag in flags:
        diagnosis.flag(*flag.split("=", 1))
    diagnosis.complete()


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
