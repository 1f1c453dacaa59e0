"""``fit --check``: what it finds, and that it leaves nothing."""

import pytest
import torch
from torch import nn

from litlab.callbacks import AGC
from litlab.errors import UserError
from litlab.tasks import Forecaster
from tests.litlab.commands.check.conftest import Data, model

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*tensorboardX")


def test_what_a_good_run_is_told(checked):
    out = checked(model())
    for row in (
        "data           │ numbers",
        "training batch │ float32 (5, 6), int64 (5,)",
        "device         │ cpu, 32-true",
        "(a guess: 1.386)",
        "Classifier: 92 parameters, 92 of them trained",
        "batch: float32 (5, 6), int64 (5,)",
        "180 steps: 3 epochs of 60; 3 validations",
        "GiB",
        "MiB each",
    ):
        assert row in out
    assert "warning" not in out
    assert "not included" not in out


def test_parameters_without_a_gradient(checked, capsys):
    with pytest.raises(UserError, match=r"no gradient reaches network.beside.weight, network.beside.bias; .*training_"):
        checked(model("dead"))
    assert "Classifier: 120 parameters" in capsys.readouterr().out  # what was found before


def test_parameters_that_are_frozen_need_none(checked):
    module = model("dead")
    module.network.beside.requires_grad_(False)
    assert "120 parameters, 92 of them trained" in checked(module)


def test_parameters_whose_gradient_is_zero(checked):
    out = checked(model("zero"))
    assert "the gradient of network.beside.weight, network.beside.bias is zero" in out


def test_inputs_that_are_not_finite(checked):
    with pytest.raises(UserError, match=r"loss is nan, as .*batch holds NaN .*in tensor 0; correct"):
        checked(model(), Data(nan=True))


def test_a_network_that_makes_nan_of_good_inputs(checked):
    with pytest.raises(
        UserError, match=r"model: the loss is nan in the first step, though the batch is finite; check the n"
    ):
        checked(model("nan"))


def test_a_gradient_that_is_not_finite_though_the_loss_is(checked):
    with pytest.raises(
        UserError, match=r"model: the gradient of network.first.weight is not finite in the first steps"
    ):
        checked(model("root"))


def test_a_learning_rate_that_is_far_too_high(checked):
    with pytest.raises(UserError, match=r"model: the loss is nan after a few steps.*lower model.optimizer.lr"):
        checked(model(lr=3e38))


def test_labels_that_are_no_class(checked):
    with pytest.raises(
        UserError, match=r"model.num_classes: 4 does not fit a training batch with labels from 0 to 4; .*0 to 3"
    ):
        checked(model(), Data(labels=5))


def test_another_number_of_classes_than_the_data_has(checked):
    with pytest.raises(UserError, match=r"model.num_classes: 3 differs from the data's 4"):
        checked(model(classes=3))


def test_a_loss_that_starts_far_too_high(checked):
    assert "times as high as that of a guess" in checked(model(scale=100))


def test_a_loss_that_starts_low_is_no_fault(checked, monkeypatch):
    module = model()
    monkeypatch.setattr(module, "expected_loss", lambda batch: 100.0)
    out = checked(module)
    assert "(a guess: 100)" in out
    assert "warning" not in out


@pytest.mark.parametrize(
    ("settings", "guess"),
    [({"loss": "mae"}, 2.0), ({"loss": "mse"}, 5.0), ({"quantiles": [0.1, 0.5, 0.9]}, 1.0)],
    ids=str,
)
def test_a_forecaster_that_knows_nothing_forecasts_the_mean(settings, guess):
    forecaster = Forecaster(nn.Identity(), horizon=2, num_targets=1, **settings)
    batch = {"future": torch.tensor([[[1.0], [3.0]]])}
    assert forecaster.expected_loss(batch) == pytest.approx(guess)


@pytest.mark.parametrize("settings", [{"max_epochs": 0}, {"max_steps": 0}, {"limit_train_batches": 0}], ids=str)
def test_nothing_to_train(checked, settings):
    with pytest.raises(UserError, match="there is nothing to train"):
        checked(model(), **settings)


def test_too_little_memory(checked):
    with pytest.raises(UserError, match=r"out of memory \(peak .*\): try "):
        checked(model("large"))


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits_the_terminal(checked, monkeypatch, columns):
    monkeypatch.setattr(Data, "description", "many words " * 30)
    module = model()
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, checked(module).splitlines())) == columns


def test_what_a_callback_of_the_run_refuses(checked):
    with pytest.raises(UserError, match=r"^agc: trainer\.gradient_clip_val is 1\.0"):
        checked(model(), callbacks=[AGC()], gradient_clip_val=1.0)
