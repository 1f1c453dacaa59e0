"""Mistakes in YAML and flags: one line that says where and what, exit code 2, and nothing half-written."""

import pytest
from lightning.fabric.utilities.exceptions import MisconfigurationException

from litlab.cli.messages import describe_error
from litlab.errors import UserError, building

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
# What is changed in, or added to, that config; what the line says after the file's name.
FILES = {
    "section": ("traner: {max_epochs: 3}", ":9: traner.max_epochs: there is no such key; did you mean 'trainer.max_e"),
    "trainer key": ("trainer: {max_epoch: 3}", ":9: trainer.max_epoch: there is no such key; did you mean 'trainer.m"),
    "trainer value": ("trainer: {max_epochs: three}", ":9: trainer.max_epochs: it must be one of <class 'int'>, "),
    "syntax": ("trainer: {max_epochs: 3", ":10: not valid YAML: did not find expected"),
    "twice": ("data: {class_path: ImageData}", ":9: not valid YAML: data is there twice"),
    "null": ("trainer: null", "trainer: null is not valid; give it a value, or leave it out"),
    "model key": (("width", "widht"), ":4: model.widht: SmallCNN has no 'widht'; did you mean 'width'?"),
    "data value": (
        ("generated", "cifar"),
        ":8: data.dataset: it must be one of Literal['folder', 'csv', 'shards', 'generated'], ",
    ),
    "optimizer": (("optim.SGD", "optim.SDG"), ":5: model.optimizer: torch.optim has no 'SDG'; did you mean 'SGD'?"),
    "optimizer key": (("lr:", "lrr:"), ":5: model.optimizer.lrr: SGD has no 'lrr'; did you mean 'lr'?"),
    "module": (("SmallCNN", "nomodule.Mine"), ":1: model: "),
}
FLAGS = {
    "--trainer.max_epoch=3": "--trainer.max_epoch=3: there is no such setting; did you mean 'trainer.max_epochs'?",
    "--model.label_smoothing=1": "model.label_smoothing: 1 is not valid; it must be at least 0 and below 1",
    "--model.schedule.scheduler=CosineAnealingLR": "there is no class 'CosineAnealingLR'; did you mean 'CosineAnneal",
    "--model.optimizer=os.system": "model.optimizer: Expected 'os.system' to be a function that returns",
    "--trainer.precision=17": "trainer.precision: it must be one of Literal[64, 32, 16], Literal['transformer-engine'",
    "--threads=0": "threads: 0 is not valid; it must be at least 1",
    "--seed_everything=-1": "seed_everything: -1 is not valid; give 0 to 4294967295",
    "--model.width": "argument --model: expected one argument",
    "configs/with/clip.yaml": "configs/with/clip.yaml: there is no such setting; a config file follows --config",
    "--ckpt_path=nope.ckpt": "checkpoint nope.ckpt: it can't be read ([Errno 2] No such file",
    "--experiment=../x": "experiment: '../x'",
}


@pytest.mark.parametrize("case", FILES)
def test_a_mistake_in_a_file(run, tmp_path, case):
    change, says = FILES[case]
    (tmp_path / "mine.yaml").write_text(GOOD.replace(*change) if isinstance(change, tuple) else f"{GOOD}{change}\n")
    done = run("fit", "--config", "mine.yaml")
    assert_one_line(done, f"mine.yaml{says}" if says.startswith(":") else says)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_mistake_in_a_flag(run, tmp_path, flag):
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert_one_line(run("fit", "--config", "mine.yaml", flag), FLAGS[flag])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("fit --config min.yaml", "min.yaml: no such file"),
        ("fit", "the following arguments are required: data, model; give --config FILE"),
        ("test --config mine.yaml", "test: there are no weights to use; give --run RUN"),
    ],
)
def test_what_is_not_there(run, tmp_path, line, says):
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert_one_line(run(*line.split()), says)


def assert_one_line(done, says: str) -> None:
    assert done.code == 2, done.out + done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    assert says in errors[0]
    assert "Traceback" not in done.err


# What ends a run


def raise_in(key: str | None, error: Exception) -> Exception:
    try:
        if key is None:
            raise error
        with building(key):
            raise error
    except Exception as caught:
        return caught


def test_what_becomes_a_line_and_what_keeps_its_traceback():
    assert describe_error(UserError("a: b; c")) == "a: b; c"
    wrapped = ValueError("jsonargparse's page of text")
    wrapped.__cause__ = UserError("a: b; c")
    assert describe_error(wrapped) == "a: b; c"
    assert describe_error(raise_in("model.optimizer", ValueError("lr is -1\nmore"))) == "model.optimizer: lr is -1"
    assert describe_error(MisconfigurationException("two of a kind")) == "two of a kind"
    assert describe_error(MemoryError("out of memory")).startswith("out of memory")  # pyright: ignore[reportOptionalMemberAccess]
    for bug in (ValueError("in a step"), FileNotFoundError(2, "No such file", "x"), KeyError("x")):
        assert describe_error(raise_in(None, bug)) is None
    assert describe_error(raise_in("model", ZeroDivisionError("a bug"))) is None
