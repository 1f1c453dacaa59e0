"""``fit --check``: what it finds, and that it leaves nothing."""

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from litlab.callbacks import Compile, OptimizerInBackward
from litlab.errors import UserError
from tests.litlab.commands.check.conftest import Data, model

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*tensorboardX")


class PartOfStep(Callback):
    part_of_step = True
    starts = 0

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses

    def setup(self, *_: object, **__: object) -> None:
        self.starts += 1
        if self.refuses:
            raise UserError("mine: it is refused")


def test_a_good_run(checked):
    out = checked(model())
    for row in (
        "data            │ numbers",
        "training batch  │ float32 (5, 6), int64 (5,)",
        "device          │ cpu, 32-true",
        "loss of a guess │ 1.386",
        "Classifier: 92 parameters, 92 of them trained",
        "180 steps, 60 an epoch; 3 validations",
        "GiB",
    ):
        assert row in out
    assert "warning" not in out
    assert "not included" not in out
    assert "Parameter groups" not in out


@pytest.mark.parametrize(
    ("module", "data", "settings", "says"),
    [
        (model("dead"), {}, {}, r"no gradient reaches network.beside.weight, network.beside.bias; let training_step"),
        (model(), {"nan": True}, {}, r"the loss is nan .*, as the first training batch holds NaN or infinity; corr"),
        (model("nan"), {}, {}, "the loss is nan in the first steps, though the batch is finite; check the network"),
        (model("root"), {}, {}, "model: the gradient of network.last.bias is not finite in the first steps"),
        (model(lr=3e38), {}, {}, "the loss is nan .*, though the first one was finite; lower model.optimizer.lr"),
        (model(classes=3), {}, {}, "model.num_classes: 3 differs from the data's 4"),
        (model(), {}, {"max_epochs": 0}, "there is nothing to train"),
        (model(), {}, {"max_steps": 0}, "there is nothing to train"),
        (model(), {}, {"limit_train_batches": 0}, "there is nothing to train"),
        (model(), {}, {"callbacks": [PartOfStep(refuses=True)]}, "^mine: it is refused"),
    ],
    ids=range(10),
)
def test_a_run_that_would_not_work_is_refused(checked, module, data, settings, says):
    with pytest.raises(UserError, match=says):
        checked(module, Data(**data), **settings)


def test_what_was_found_before_a_refusal_is_shown(checked, capsys):
    with pytest.raises(UserError):
        checked(model("dead"))
    assert "Classifier: 120 parameters" in capsys.readouterr().out


def test_warnings(checked, monkeypatch):
    assert "the gradient of network.beside.weight, network.beside.bias is zero" in checked(model("zero"))
    assert "times as high as that of a guess" in checked(model(scale=100))
    module = model()
    monkeypatch.setattr(module, "expected_loss", lambda batch: 100.0)
    assert "warning" not in checked(module)  # a low start is no fault


def test_parameters_that_are_frozen_need_no_gradient(checked):
    module = model("dead")
    module.network.beside.requires_grad_(False)
    out = checked(module)
    assert "120 parameters, 92 of them trained" in out
    assert "not trained" in out  # among the groups


def test_the_loss_is_that_of_a_batch_when_gradients_are_accumulated(checked):
    expected = [line.split() for line in checked(model()).splitlines() if "loss at start" in line]
    for settings in ({"accumulate_grad_batches": 4}, {"callbacks": [GradientAccumulationScheduler({0: 4})]}):
        lines = checked(model(), **settings).splitlines()
        assert [line.split() for line in lines if "loss at start" in line] == expected


def test_what_is_part_of_a_step_is_tried(checked):
    part, other = PartOfStep(), PartOfStep()
    other.part_of_step = False
    checked(model(), callbacks=[part, other])
    assert (part.starts, other.starts) == (1, 0)


def test_gradients_that_are_freed_at_once_are_checked(checked, monkeypatch):
    monkeypatch.setattr(OptimizerInBackward, "part_of_step", True, raising=False)
    assert "92 of them trained" in checked(model(), callbacks=[OptimizerInBackward()])
    with pytest.raises(UserError, match=r"no gradient reaches network\.beside"):
        checked(model("dead"), callbacks=[OptimizerInBackward()])


def test_what_it_does_not_know_is_said(checked):
    clock = {"val_check_interval": "00:01:00:00"}
    out = checked(model(), callbacks=[Compile("default")], strategy="ddp", devices=2, **clock)
    text = " ".join(out.replace("│", " ").split())
    assert "torch.compile: its time" in text
    assert "2 processes" in text
    assert "90 steps, 30 an epoch; 0 validations" in out  # each process has half of the batches


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits_the_terminal(checked, monkeypatch, columns):
    monkeypatch.setattr(Data, "description", "many words " * 30)
    module = model()
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, checked(module).splitlines())) == columns
