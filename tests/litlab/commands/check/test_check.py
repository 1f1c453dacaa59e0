"""``fit --check``: what it finds, and that it leaves nothing."""

import math
from functools import partial
from unittest.mock import Mock

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch.optim.lr_scheduler import OneCycleLR

from litlab.callbacks import Compile, OptimizerInBackward
from litlab.errors import UserError
from litlab.optim import GroupRule, ParamGroups, Schedule
from tests.conftest import BRIEF
from tests.litlab.commands.check.conftest import make_data, make_model
from tests.litlab.runs.conftest import error

pytestmark = pytest.mark.filterwarnings("ignore:.*tensorboardX")


def test_a_good_run(checked):
    out = checked(make_model())
    for row in (
        "data numbers",
        "training batch float32 (5, 6), int64 (5,)",
        "device cpu, 32-true",
        "loss of a guess 1.386",
        "Classifier: 92 parameters, 92 of them trained",
        "180 steps, 60 an epoch; 3 validations",
        "GiB",
    ):
        assert row in out
    assert "warning" not in out


@pytest.mark.parametrize(
    ("model", "unit", "says"),
    [
        ({"beside": True}, 1.0, r"no gradient reaches network.0.beside.weight, network.0.beside.b"),
        ({}, math.nan, r"the loss is nan .*, as the first training batch holds NaN or infinity;"),
        (
            {"change": lambda network, x, out: out / (out - out)},
            1.0,
            "the loss is nan in the first steps, though the batch is finite;",
        ),
        (
            {"change": lambda network, x, out: out + (0 * out.sum()).abs().sqrt()},
            1.0,
            "model: the gradient of network.2.bias is not finite",
        ),
        ({"lr": 3e38}, 1.0, "the loss is inf .*first one was finite; lower model.optimizer.lr"),
    ],
    ids=range(5),
)
def test_a_run_that_would_not_work_is_refused(checked, capsys, model, unit, says):
    with pytest.raises(UserError, match=says):
        checked(make_model(**model), make_data(unit))
    assert "training batch" in capsys.readouterr().out  # what was found before is shown


def test_warnings(checked, monkeypatch):
    zero = make_model(lambda network, x, out: out + 0 * network[0].beside(x), beside=True)
    says = "the gradient of network.0.beside.weight, network.0.beside.bias is zero"
    assert says in checked(zero)
    module = make_model(lambda network, x, out: 100 * out)
    assert "times as high as that of a guess" in checked(module)
    monkeypatch.setattr(module, "expected_loss", lambda batch: 100.0)
    assert "warning" not in checked(module)  # a low start is no fault


def test_groups(checked):
    """Rates as the schedule will reach them, and what is not trained, which needs no gradient."""
    module = make_model(beside=True)
    module.network[0].beside.requires_grad_(False)
    module.param_groups = ParamGroups([GroupRule("network.2", lr_scale=3.0)])
    module.schedule = Schedule(partial(OneCycleLR, max_lr=0.01), "step")
    out = checked(module)
    assert "120 parameters, 92 of them trained" in out
    for row in (
        "network.0 (2) 0.01 0",
        "network.2 (2) 0.03 0",
        "28 network.0.beside (2) not trained",
    ):
        assert row in out


def test_the_loss_is_that_of_a_batch_when_gradients_are_accumulated(checked):
    accumulated = {"callbacks": [GradientAccumulationScheduler({0: 4})]}
    plain, other = (
        checked(make_model(), **settings).partition("loss at start ")[2][:6]
        for settings in ({}, accumulated)
    )
    assert math.isfinite(float(plain))
    assert other == plain


def test_what_is_part_of_a_step_is_tried_and_what_it_does_not_know_is_said(checked, monkeypatch):
    part, other = Callback(), Callback()
    part.part_of_step, part.setup, other.setup = True, Mock(), Mock()
    # Gradients are freed at once
    monkeypatch.setattr(OptimizerInBackward, "part_of_step", True, raising=False)
    clock = {"val_check_interval": "00:01:00:00"}
    callbacks = [part, other, Compile("default"), OptimizerInBackward()]
    out = checked(make_model(), callbacks=callbacks, strategy="ddp", devices=2, **clock)
    assert (part.setup.call_count, other.setup.call_count) == (1, 0)
    assert "92 of them trained" in out
    assert "torch.compile: its time" in out
    assert "2 processes" in out
    assert "90 steps, 30 an epoch; 0 validations" in out  # each process has half of the batches


def test_the_command(run, small_data, tmp_path):
    flags = [*small_data["images"], *BRIEF, "--trainer.precision=32-true"]
    done = run("fit --check", *flags).check()
    assert f"guess {math.log(10):.4f}" in " ".join(done.out.split())
    assert " an epoch; 1 validations" in done.out
    assert {path.name for path in tmp_path.iterdir()} <= {"data", "cache"}
    assert "error: model: the loss is " in error(
        run("fit --check", *flags, "--model.optimizer.lr=1e30")
    )
