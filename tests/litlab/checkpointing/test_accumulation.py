"""Accumulation that differs between epochs: counts, schedules, resumption within an epoch."""

from functools import partial

import pytest

from litlab.checkpointing.lightning_callbacks import AccumulationSchedule
from litlab.optim import Schedule, WarmupDecay
from litlab.util.steps import steps_of_run
from tests.litlab.checkpointing.in_process import BATCHES, Draws, fit
from tests.litlab.checkpointing.resuming import leaves, same

pytestmark = pytest.mark.filterwarnings("ignore:Checkpoint directory")
SCHEDULING = {0: 1, 1: 3, 2: 2}  # 5, 2 and 3 steps
SETTINGS = {"accumulate_grad_batches": 1, "max_epochs": 3}


def decaying(stop=None):
    return Draws(stop, Schedule(partial(WarmupDecay, warmup=0.0), interval="step"))


def run(folder, **options):
    return fit(folder, module=decaying, callbacks=[AccumulationSchedule(dict(SCHEDULING))], **SETTINGS, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"))


def test_steps_and_schedule(whole):
    model, trainer = whole
    assert BATCHES == 5
    assert steps_of_run(trainer) == trainer.global_step == 10
    rates = [model.rates[epoch, batch] for epoch, batch in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 3), (2, 0), (2, 2))]
    assert rates == pytest.approx([0.05 * (10 - step) / 11 for step in (0, 1, 5, 5, 6, 7, 8)])
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("place", [("batch", 1, 2), ("batch", 1, 4), ("validation", 1, 1), ("batch", 2, 3)], ids=str)
def test_resumes_exactly(whole, tmp_path, place):
    run(tmp_path, stop=place)
    model, trainer = run(tmp_path, resume=True)
    expected, uninterrupted = whole
    for one, other in ((expected, model), (uninterrupted.optimizers[0], trainer.optimizers[0])):
        before, after = dict(leaves(one.state_dict())), dict(leaves(other.state_dict()))
        assert before.keys() == after.keys()
        assert all(same(value, after[name]) for name, value in before.items())
    assert model.rates.items() <= expected.rates.items()
    assert trainer.global_step == 10
