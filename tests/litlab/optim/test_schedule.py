"""Schedules: lengths from the run, groups kept in ratio, errors."""

from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler

from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay


def _optimizer():
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    return torch.optim.SGD([{"params": parameters[:1], "lr": 1.0}, {"params": parameters[1:], "lr": 10.0}])


def _rates(scheduler, optimizer, steps):
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        assert optimizer.param_groups[1]["lr"] == pytest.approx(10 * rates[-1])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("scheduler", "length"),
    [
        (lr_scheduler.CosineAnnealingLR, "T_max"),
        (partial(lr_scheduler.OneCycleLR, max_lr=1.0), "total_steps"),
        (WarmupDecay, "total_steps"),
    ],
)
def test_length_comes_from_the_run(scheduler, length):
    for interval, frequency, expected in (("step", 1, 120), ("step", 3, 40), ("epoch", 1, 6)):
        built = Schedule(scheduler, interval, frequency).configure(_optimizer(), steps=120, epochs=6)
        assert getattr(built["scheduler"], length) == expected
        assert (built["interval"], built["frequency"]) == (interval, 1)  # the module counts steps, not Lightning


@pytest.mark.parametrize(
    "scheduler",
    [
        partial(lr_scheduler.CosineAnnealingLR, T_max=7),
        partial(WarmupDecay, total_steps=7),
        partial(lr_scheduler.OneCycleLR, max_lr=1.0, epochs=7, steps_per_epoch=1),
    ],
)
def test_a_given_length_stays(scheduler):
    built = Schedule(scheduler, "step").configure(_optimizer(), steps=6, epochs=6)["scheduler"]
    assert 7 in (getattr(built, "T_max", None), getattr(built, "total_steps", None))


def test_a_peak_that_is_left_out_is_the_rate_of_each_group():
    optimizer = _optimizer()
    Schedule(lr_scheduler.OneCycleLR, "step").configure(optimizer, steps=120, epochs=6)
    assert [group["max_lr"] for group in optimizer.param_groups] == [1.0, 10.0]


def test_schedulers_without_a_length_need_no_end():
    built = Schedule(partial(lr_scheduler.StepLR, step_size=3)).configure(_optimizer(), steps=float("inf"), epochs=-1)
    assert built["scheduler"].step_size == 3


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Schedule(lr_scheduler.StepLR), "model.schedule.scheduler: 'step_size' is not set; it is required"),
        (Schedule(lr_scheduler.CosineAnnealingLR), "T_max can't be taken from a run without an end"),
        (Schedule(lr_scheduler.ReduceLROnPlateau), "model.schedule.monitor: it is not set"),
        (Schedule(partial(WarmupDecay, warmup=1.0, total_steps=3)), "warmup is 1.0"),
        (Schedule(WarmupDecay, frequency=0), "model.schedule.frequency: 0 is not valid"),
    ],
)
def test_errors_name_the_key(schedule, says):
    with pytest.raises((UserError, ValueError)) as caught:
        schedule.configure(_optimizer(), steps=float("inf"), epochs=-1)
    assert says in str(caught.value)


def test_warmup_rises_then_falls_and_keeps_ratios():
    optimizer = _optimizer()
    rates = _rates(WarmupDecay(optimizer, warmup=0.2, total_steps=99), optimizer, 99)
    assert rates[19] == pytest.approx(1.0)
    assert rates[:20] == sorted(rates[:20])
    assert rates[19:] == sorted(rates[19:], reverse=True)
    assert rates[0] > 0
    assert 0 < rates[-1] < 0.02


def test_cosine_is_above_the_line_first_and_below_it_later():
    rates = {}
    for decay in ("linear", "cosine"):
        optimizer = _optimizer()
        rates[decay] = _rates(WarmupDecay(optimizer, warmup=0, final=0.1, decay=decay, total_steps=99), optimizer, 99)
    assert rates["cosine"][20] > rates["linear"][20]
    assert rates["cosine"][80] < rates["linear"][80]
    assert rates["cosine"][-1] >= 0.1
