"""The learning rate that is found, and that the run that follows is that of the rate given by
hand.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from litlab.callbacks import EMA, ActivationCheckpointing, LRFinder
from litlab.callbacks.lr_finder import suggest_rate
from litlab.errors import UserError
from litlab.optim import GroupRule, ParamGroups, Schedule
from litlab.optim.schedule import WarmupDecay
from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal, make_trainer

RATES = np.geomspace(1e-6, 10, 100)
LOSSES = 2 - 1.5 / (1 + (1e-3 / RATES) ** 2) + RATES**2  # falls at 1e-3, rises at 1
NOISE = np.random.default_rng(0).normal(size=100)


@pytest.mark.parametrize(
    ("noise", "changed", "value"),
    [
        (0.05, slice(0), 0.0),
        (0.0, 12, 1.99),  # per unit of the rate a huge slope, per factor none
        (0.0, slice(-8, None), 1e30),  # a divergence hides nothing
    ],
)
def test_the_steepest_fall_is_suggested(noise, changed, value):
    losses = LOSSES + noise * NOISE
    losses[changed] = value
    assert math.log10(suggest_rate(RATES, losses)) == pytest.approx(-3, abs=0.35)


def test_where_the_fall_is_lost_in_the_noise_the_rise_counts():
    losses = 2 + 0.1 * NOISE
    assert suggest_rate(RATES, losses) is None
    assert suggest_rate(RATES[::6], LOSSES[::6]) is None  # too few steps
    assert 2e-3 < suggest_rate(RATES, losses + (RATES / 0.1) ** 2) < 0.1


def model_of(schedule, lr=0.05) -> Classifier:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    groups = ParamGroups([GroupRule("network.3", lr_scale=10.0)])
    settings = {"optimizer": partial(torch.optim.SGD, lr=lr), "param_groups": groups}
    return Classifier(network, num_classes=4, schedule=Schedule(schedule, "step"), **settings)


def fit(folder, model, finder, *callbacks):
    """Return the rates of each step, of the search, too."""
    rates = []

    def keep(trainer, model, optimizer):
        rates.append([float(group["lr"]) for group in optimizer.param_groups])

    noting = LambdaCallback(on_before_optimizer_step=keep)
    noting.part_of_step = True
    settings = {"max_epochs": 2, "logger": CSVLogger(folder, "", "run")}
    settings |= {"accumulate_grad_batches": 2, "callbacks": [finder, *callbacks, noting]}
    trainer, data = make_trainer(folder, **settings), TinyData(samples=20)
    if isinstance(finder, LRFinder):
        finder.search(trainer, model, data)
    trainer.fit(model, data)
    return rates


def test_the_run_that_follows_is_that_of_the_rate_given_by_hand(tmp_path):
    """Weights, statistics and schedule; the groups keep their proportion."""
    finder, warm_up = LRFinder(1e-4, 10, num_training_steps=40), partial(WarmupDecay, warmup=0.5)
    model, recomputed = model_of(warm_up), ActivationCheckpointing("network.1")
    rates = fit(tmp_path, model, finder, EMA(0.5), recomputed)
    assert all(head == pytest.approx(10 * rest) for rest, head in rates)
    assert model.global_step == 2 * 3
    searched, after = rates[:-6], rates[-6:]
    assert searched[0][0] == pytest.approx(1e-4)
    assert searched == sorted(searched)
    assert (tmp_path / "run/lr_finder.png").is_file()

    by_hand = model_of(warm_up, finder.lr)
    assert fit(tmp_path / "by hand", by_hand, EMA(0.5)) == after
    assert are_equal(model.state_dict(), by_hand.state_dict())


def test_the_factor_that_a_schedule_begins_with_plays_no_part(tmp_path):
    model = model_of(partial(OneCycleLR, max_lr=0.05))
    finder = LRFinder(1e-4, 10, num_training_steps=30)
    rates = fit(tmp_path, model, finder)
    assert [rates[0][0], rates[29][0]] == pytest.approx([1e-4, 10])
    assert model.lr == finder.lr


class Flat(Tiny):
    lr = 0.1

    def training_step(self, batch, batch_idx):
        return 0 * super().training_step(batch, batch_idx) + 1


@pytest.mark.parametrize(
    ("model", "line"), [(Tiny, "needs a model with an lr"), (Flat, "found no rate at which the")]
)
def test_what_is_refused(tmp_path, model, line):
    with pytest.raises(UserError, match=rf"^trainer\.callbacks: LRFinder {line}"):
        fit(tmp_path, model(), LRFinder(num_training_steps=20))
