"""Schedules: lengths from the run, rates of a fit, groups kept in ratio, errors."""

import math
from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler as torchs

from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay
from tests.litlab.checkpointing.in_process import Draws, fit

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*logging interval", "ignore:A `OneCycleLR`"
)
# Than 10 below the best: always
PLATEAU = partial(
    torchs.ReduceLROnPlateau, patience=0, factor=0.5, threshold=10.0, threshold_mode="abs"
)


def fall(part):
    """The share of its rate that CosineAnnealingLR has in a part of its length."""
    return (1 + math.cos(math.pi * part)) / 2


@pytest.mark.parametrize(
    ("scheduler", "interval", "frequency", "monitor", "shares"),
    [
        (torchs.CosineAnnealingLR, "step", 2, None, [fall(step // 2 / 6) for step in range(12)]),
        (torchs.CosineAnnealingLR, "epoch", 1, None, [fall(step // 3 / 4) for step in range(12)]),
        (partial(torchs.ExponentialLR, gamma=0.9), "epoch", 2, None, [1] * 6 + [0.9] * 6),
        (PLATEAU, "epoch", 1, "val/loss", [1] * 6 + [0.5] * 3 + [0.25] * 3),
    ],
)
def test_rates_of_a_fit(tmp_path, scheduler, interval, frequency, monitor, shares):
    """Of four epochs of three steps, five batches in pairs; Lightning says of -1 epochs."""
    module = partial(Draws, schedule=Schedule(scheduler, interval, frequency, monitor))
    model, _ = fit(tmp_path, module=module, options={}, max_epochs=-1, max_steps=12)
    rates = [model.rates[epoch, batch] / 0.05 for epoch in range(4) for batch in (0, 2, 4)]
    assert rates == pytest.approx(shares, abs=1e-6)


def two_groups():
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    return torch.optim.SGD(
        [{"params": parameters[:1], "lr": 1.0}, {"params": parameters[1:], "lr": 10.0}]
    )


class Mine(torchs.LambdaLR):
    """A scheduler of one's own, with a length and whatever else."""

    def __init__(self, opt, total_steps, **others) -> None:
        self.total_steps = total_steps
        super().__init__(opt, lambda step: 1 - step / total_steps, **others)


@pytest.mark.parametrize(
    ("scheduler", "frequency", "length"),
    [
        (partial(torchs.CosineAnnealingLR, T_max=7), 1, 7),  # a given length stays
        (partial(torchs.OneCycleLR, max_lr=1.0, epochs=130, steps_per_epoch=1), 1, 130),
        (torchs.OneCycleLR, 1, 120),
        (Mine, 3, 40),
    ],
)
def test_a_length_that_is_left_out_is_that_of_the_run(scheduler, frequency, length):
    optimizer = two_groups()
    built = Schedule(scheduler, "step", frequency).configure(optimizer, length=120)["scheduler"]
    assert length in (getattr(built, "T_max", None), getattr(built, "total_steps", None))
    assert optimizer.param_groups[0].get("max_lr", 1.0) == 1.0
    if scheduler is torchs.OneCycleLR:  # and a peak that of each group
        assert [group["max_lr"] for group in optimizer.param_groups] == [1.0, 10.0]


@pytest.mark.parametrize(
    ("schedule", "length", "says"),
    [
        (Schedule(torchs.ReduceLROnPlateau, monitor="val/acc"), 20, "better when higher; set max$"),
        (Schedule(torchs.CosineAnnealingLR), math.inf, "T_max is not set, .*trainer.max_epochs"),
    ],
)
def test_what_is_refused(schedule, length, says):
    with pytest.raises(UserError, match=says):
        schedule.configure(two_groups(), length=length)


def test_warmup_rises_then_falls_and_keeps_ratios():
    optimizer, rates, settings = two_groups(), [], {"warmup": 0.2, "final": 0.1, "total_steps": 99}
    scheduler = WarmupDecay(optimizer, **settings)
    for _ in range(99):
        rates.append(optimizer.param_groups[0]["lr"])
        assert optimizer.param_groups[1]["lr"] == pytest.approx(10 * rates[-1])
        optimizer.step()
        scheduler.step()
    assert rates[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert rates[19:] == pytest.approx([1 - 0.9 * step / 80 for step in range(80)])
    cosine = WarmupDecay(two_groups(), decay="cosine", **settings)
    cosine.last_epoch = 39  # a quarter of the descent
    assert cosine.get_lr()[0] == pytest.approx(0.1 + 0.9 * (1 + 0.5**0.5) / 2)
