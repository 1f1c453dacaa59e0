"""A schedule whose run goes on with another length ends with it, and one that is over too early is refused."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from litlab.errors import UserError
from litlab.optim import Chain, Schedule, Sequence, WarmupDecay
from tests.litlab.checkpointing.in_process import Data, Draws, fit

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*logging interval", "ignore:Checkpoint directory"
)
SCHEDULERS = {
    "cosine": lr_scheduler.CosineAnnealingLR,
    "one-cycle": partial(lr_scheduler.OneCycleLR, max_lr=0.1),
    "polynomial": partial(lr_scheduler.PolynomialLR, total_iters=None),
    "warm-up": WarmupDecay,
    "sequence": partial(
        Sequence,
        schedulers=[
            partial(lr_scheduler.LinearLR, start_factor=0.1, total_iters=None),
            lr_scheduler.CosineAnnealingLR,
        ],
        milestones=[0.3],
    ),
    "chain": partial(
        Chain, schedulers=[lr_scheduler.CosineAnnealingLR, partial(lr_scheduler.ExponentialLR, gamma=0.9)]
    ),
}
CHANGES = {
    "larger batches": {"data": partial(Data, 8)},
    "smaller batches": {"data": partial(Data, 2)},
    "accumulation": {"accumulate_grad_batches": 4},
    "smaller batches, accumulation": {"data": partial(Data, 2), "accumulate_grad_batches": 4},
    "fewer batches": {"limit_train_batches": 0.4},
    "more epochs": {"max_epochs": 7},
    "fewer epochs": {"max_epochs": 3},
}
LIMITS = {"options": {"monitor": "val/loss"}, "num_sanity_val_steps": 0}


@pytest.fixture(autouse=True)
def _seed(monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "")


def module(scheduler, interval="step", frequency=1, **settings):
    return partial(Draws, schedule=Schedule(scheduler, interval, frequency), **settings)


def momenta(fitting):
    return [group.get("betas") for group in fitting.optimizers[0].param_groups]


@pytest.mark.parametrize(
    ("name", "change", "frequency"),
    [
        *(("one-cycle", change, 1) for change in CHANGES),
        ("cosine", "smaller batches", 2),
        ("warm-up", "larger batches", 1),
        ("polynomial", "accumulation", 1),
        ("sequence", "more epochs", 1),
        ("chain", "larger batches", 2),
    ],
)
def test_the_rates_are_those_of_a_run_that_was_like_that_from_the_start(tmp_path, name, change, frequency):
    made = module(SCHEDULERS[name], frequency=frequency)
    settings = {"max_epochs": 4, "accumulate_grad_batches": 1, **LIMITS}
    fit(tmp_path / "run", ("batch", 2, 0), module=made, **settings)
    resumed, fitting = fit(tmp_path / "run", resume=True, module=made, **settings | CHANGES[change])
    whole, expected = fit(tmp_path / "whole", module=made, **settings | CHANGES[change])
    assert resumed.rates
    assert resumed.rates == {place: rate for place, rate in whole.rates.items() if place[0] >= 2}
    assert momenta(fitting) == momenta(expected)


def test_it_is_said_and_not_done_twice(tmp_path, caplog):
    made = module(WarmupDecay)
    settings = {"max_epochs": 6, "accumulate_grad_batches": 1, **LIMITS}
    fit(tmp_path, ("batch", 2, 0), module=made, **settings)
    changed = settings | CHANGES["larger batches"]
    first, _ = fit(tmp_path, ("batch", 4, 0), resume=True, module=made, **changed)
    assert "WarmupDecay is at step 4 of 12 now (it was at 10 of 30)" in caplog.text
    caplog.clear()
    second, _ = fit(tmp_path, resume=True, module=made, **changed)
    assert "is at step" not in caplog.text
    whole, _ = fit(tmp_path / "whole", module=made, **changed)
    assert first.rates | second.rates == {place: rate for place, rate in whole.rates.items() if place[0] >= 2}


def test_new_settings_hold(tmp_path):
    """As with the command line, where the checkpoint knows its schedule as a plain description."""

    def recipe(gamma: float):
        made = module(partial(lr_scheduler.StepLR, step_size=2, gamma=gamma))

        def build(stop):
            model = made(stop)
            model.save_hyperparameters({"schedule": {"gamma": gamma}})
            return model

        return build

    settings = {"max_epochs": 3, **LIMITS}
    fit(tmp_path / "run", ("batch", 1, 0), module=recipe(0.9), **settings)
    resumed, _ = fit(tmp_path / "run", resume=True, module=recipe(0.5), **settings)
    whole, _ = fit(tmp_path / "whole", module=recipe(0.5), **settings)
    assert resumed.rates == {place: rate for place, rate in whole.rates.items() if place[0] >= 1}


def test_new_settings_of_a_plateau_hold(tmp_path):
    def made(patience):
        never = partial(
            lr_scheduler.ReduceLROnPlateau, patience=patience, factor=0.5, threshold=9, threshold_mode="abs"
        )
        return partial(Draws, schedule=Schedule(never, monitor="val/loss"))

    settings = {"max_epochs": 4, **LIMITS}
    fit(tmp_path, ("batch", 2, 0), module=made(9), **settings)
    resumed, fitting = fit(tmp_path, resume=True, module=made(1), **settings)
    assert resumed.rates[2, 0] == 0.05
    assert resumed.rates[3, 0] == 0.025
    assert fitting.lr_scheduler_configs[0].scheduler.patience == 1


@pytest.mark.parametrize(
    ("schedule", "settings", "says"),
    [
        (
            Schedule(partial(WarmupDecay, total_steps=9), "step"),
            {},
            "WarmupDecay ends after 9 steps, and this run steps it 12",
        ),
        (
            Schedule(lr_scheduler.PolynomialLR, "step", 2),
            {},
            "PolynomialLR ends after 5 steps, and this run steps it 6",
        ),
        (
            Schedule(partial(lr_scheduler.OneCycleLR, max_lr=1, total_steps=3), "step"),
            {},
            "OneCycleLR ends after 3 steps",
        ),
        (
            Schedule(lr_scheduler.ReduceLROnPlateau, monitor="val/loss"),
            {"check_val_every_n_epoch": 2},
            "model.schedule.frequency: it is 1, but val/loss is logged every 2 epochs",
        ),
        (Schedule(lr_scheduler.ReduceLROnPlateau, "step", 2, "val/loss"), {}, "would be stepped after 2 batches"),
    ],
)
def test_a_schedule_that_can_not_work_is_refused_before_the_first_step(tmp_path, schedule, settings, says):
    with pytest.raises(UserError, match=says):
        fit(tmp_path, module=partial(Draws, schedule=schedule), max_epochs=4, **LIMITS | settings)


def test_a_given_length_that_more_epochs_exceed_is_refused(tmp_path):
    made = module(partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=6))
    fit(tmp_path, ("batch", 1, 0), module=made, max_epochs=2, **LIMITS)
    with pytest.raises(UserError, match="OneCycleLR ends after 6 steps, and this run steps it 12 times"):
        fit(tmp_path, resume=True, module=made, max_epochs=4, **LIMITS)


def test_frequency_counts_optimizer_steps(tmp_path):
    """Lightning counts the batches of each epoch: with two of five batches accumulated, never a third one."""
    model, fitting = fit(tmp_path, module=module(partial(lr_scheduler.StepLR, step_size=1), frequency=2), max_epochs=4)
    assert fitting.lr_scheduler_configs[0].scheduler.last_epoch == 6
    assert model.rates[3, 4] == pytest.approx(0.05 * 0.1**5)


class Reordered(Draws):
    """The same layers, registered in another order."""

    def __init__(self, stop=None):
        super().__init__(stop)
        first, *others = self.network.children()
        self.head, self.body = others.pop(), nn.Sequential(first, *others)
        del self.network
        self.network = lambda inputs: self.head(self.body(inputs))


class Ordered(Draws):
    def __init__(self, stop=None):
        super().__init__(stop)
        first, *others = self.network.children()
        head, body = others.pop(), nn.Sequential(first, *others)
        del self.network
        self.body, self.head = body, head
        self.network = lambda inputs: self.head(self.body(inputs))


class Frozen(Ordered):
    def __init__(self, stop=None):
        super().__init__(stop)
        self.body.requires_grad_(False)


def forget(path):
    """Makes a checkpoint as of plain Lightning, which does not keep the names."""
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["parameter_names"]
    torch.save(checkpoint, path)


def test_the_optimizers_state_is_matched_by_name(tmp_path):
    expected, _ = fit(tmp_path / "whole", module=Ordered)
    fit(tmp_path / "run", ("batch", 1, 3), module=Ordered)
    resumed, _ = fit(tmp_path / "run", resume=True, module=Reordered)
    assert list(resumed.state_dict()) != list(expected.state_dict())
    for name, weight in expected.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


@pytest.mark.parametrize(
    ("before", "after", "old", "says"),
    [
        (
            Ordered,
            Frozen,
            False,
            r"^model: body.0.bias \(and 3 more\) was trained in the run and is not trained here; leave it",
        ),
        (
            Frozen,
            Ordered,
            False,
            r"^model: body.0.bias \(and 3 more\) is trained here and was not trained in the run; ",
        ),
        (Ordered, Frozen, True, "it trains 2 parameters in 1 groups, in the checkpoint 6 in 1; leave it"),
    ],
)
def test_other_parameters_are_refused_by_name(tmp_path, before, after, old, says):
    fit(tmp_path, ("batch", 1, 0), module=before)
    if old:
        forget(tmp_path / "last.ckpt")
    with pytest.raises(UserError, match=says):
        fit(tmp_path, resume=True, module=after)
