"""Mistakes in YAML and flags: one line that says where and what, exit code 2, and nothing
half-written.
"""

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
# What is replaced in that config, or added to it; a part of the line.
FILES = [
    (
        "traner: {max_epochs: 3}",
        "mine.yaml:9: traner.max_epochs: there is no such key; did you mean 'trainer.max_e",
    ),
    (
        "trainer: {max_epochs: three}",
        ":9: trainer.max_epochs: three is not valid; it must be one of int, null",
    ),
    ("trainer: {max_epochs: 3", "mine.yaml:10: not valid YAML: did not find expected"),
    ("trainer: null", "error: trainer: null is not valid; give it a value, or leave it out"),
    ("width->widht", "mine.yaml:4: model.widht: SmallCNN has no 'widht'; did you mean 'width'?"),
    (
        "generated->cifar",
        ":8: data.dataset: cifar is not valid; it must be one of 'folder', 'csv', 'shards', 'gen",
    ),
    ("optim.SGD->optim.SDG", ":5: model.optimizer: torch.optim has no 'SDG'; did you mean 'SGD'?"),
    ("lr:->lrr:", "mine.yaml:5: model.optimizer.lrr: SGD has no 'lrr'; did you mean 'lr'?"),
    ("SmallCNN->nomodule.Mine", "mine.yaml:1: model: "),
]
COMMANDS = {
    "fit --config mine.yaml --trainer.max_epoch=3": "there is no such setting; did you mean "
    "'trainer.max_epochs'?",
    "fit --config mine.yaml --model.label_smoothing=1": "model.label_smoothing: 1 is not valid; it "
    "must be at least 0",
    "fit --config mine.yaml --model.schedule.scheduler=CosineAnealingLR": "there is no class "
    "'CosineAnealingLR'; did",
    "fit --config mine.yaml --model.optimizer=os.system": "Expected 'os.system' to be a function "
    "that returns",
    "fit --config mine.yaml --seed_everything=-1": "seed_everything: -1 is not valid; give 0 to "
    "4294967295",
    "fit --config mine.yaml clip.yaml": "clip.yaml: there is no such setting; a config file "
    "follows --config",
    "fit --config mine.yaml --ckpt_path=nope.ckpt": "checkpoint nope.ckpt: there is no such file; "
    "use another one",
    "fit --config mine.yaml --experiment=../x": "experiment: '../x'",
    "fit": "the following arguments are required: data, model; give --config FILE",
    "test --config mine.yaml": "test: there are no weights to use; give --run RUN",
}


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        *((change, "fit --config mine.yaml", says) for change, says in FILES),
        *(("", line, says) for line, says in COMMANDS.items()),
    ],
)
def test_a_mistake_is_one_line(run, tmp_path, change, line, says):
    old, arrow, new = change.partition("->")
    (tmp_path / "mine.yaml").write_text(GOOD.replace(old, new) if arrow else f"{GOOD}{change}\n")
    done = run(*line.split())
    assert done.code == 2, done.out + done.err
    [error] = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert says in error
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


# What ends a run


def raise_in(key: str, error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught, building(key):
        raise error
    return caught.value


def test_what_becomes_a_line_and_what_keeps_its_traceback():
    wrapped = ValueError("jsonargparse's page of text")
    wrapped.__cause__ = UserError("a: b; c")
    assert describe_error(wrapped) == "a: b; c"
    line = describe_error(raise_in("model.optimizer", ValueError("lr is -1\nmore")))
    assert line == "model.optimizer: lr is -1; LITLAB_TRACEBACK=1 shows where"
    assert describe_error(MisconfigurationException("two of a kind")) == "two of a kind"
    assert describe_error(PermissionError(13, "denied", "x")) == "[Errno 13] denied: 'x'"
    assert str(describe_error(MemoryError())).startswith("out of memory")
    for bug in (ValueError("in a step"), FileNotFoundError(2, "No such file", "x"), KeyError("x")):
        assert describe_error(bug) is None
    assert describe_error(raise_in("model", ZeroDivisionError("a bug"))) is None
