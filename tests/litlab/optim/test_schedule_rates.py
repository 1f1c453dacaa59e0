"""The rates of a fit, step by step, are those of the loop in torch's documentation, for every kind of schedule."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as torchs

from litlab.errors import UserError
from litlab.optim import Chain, Schedule, Sequence, WarmupDecay
from tests.litlab.checkpointing.in_process import Draws, fit

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*logging interval", "ignore:A `OneCycleLR`"
)
EPOCHS, STEPS = 4, 3  # of an epoch: 5 batches in pairs
WORSE = {"patience": 0, "factor": 0.5, "threshold": 10.0, "threshold_mode": "abs"}  # than 10 below the best: always
PARTS: list[Any] = [
    partial(torchs.LinearLR, start_factor=0.1, total_iters=None),
    torchs.CosineAnnealingLR,
    partial(torchs.ExponentialLR, gamma=0.9),
]


def sequence(optimizer, length):
    first = torchs.LinearLR(optimizer, start_factor=0.1, total_iters=length // 4)
    second = torchs.CosineAnnealingLR(optimizer, length // 2 - length // 4)
    third = torchs.ExponentialLR(optimizer, 0.9)
    return torchs.SequentialLR(optimizer, [first, second, third], [length // 4, length // 2])


def restarts(optimizer, length):
    parts = [
        torchs.CosineAnnealingLR(optimizer, length // 4),
        torchs.CosineAnnealingLR(optimizer, length - length // 4),
    ]
    return torchs.SequentialLR(optimizer, parts, [length // 4])


def chain(optimizer, length):
    parts = [torchs.CosineAnnealingLR(optimizer, length), torchs.StepLR(optimizer, 2, 0.5)]
    return torchs.ChainedScheduler(parts, optimizer)


def warm_up(optimizer, length):
    """0.25 of the way up, then down by a cosine, passing neither 0."""
    peak = torch.tensor([(step + 1) / (length + 1) for step in range(length + 1)])
    shape = torch.where(peak < 0.25, peak / 0.25, (1 - torch.cos(torch.pi * (1 - peak) / 0.75)) / 2)
    return torchs.LambdaLR(optimizer, lambda step: shape[step].item())


# By name: what YAML says, and what torch's documentation builds for a number of steps.
SCHEDULES: dict[str, tuple[Any, Any]] = {
    "step": (partial(torchs.StepLR, step_size=2, gamma=0.7), lambda o, n: torchs.StepLR(o, 2, 0.7)),
    "multi-step": (partial(torchs.MultiStepLR, milestones=[1, 3]), lambda o, n: torchs.MultiStepLR(o, [1, 3])),
    "exponential": (partial(torchs.ExponentialLR, gamma=0.9), lambda o, n: torchs.ExponentialLR(o, 0.9)),
    "polynomial": (partial(torchs.PolynomialLR, total_iters=None), torchs.PolynomialLR),
    "cosine": (torchs.CosineAnnealingLR, torchs.CosineAnnealingLR),
    "one-cycle": (torchs.OneCycleLR, lambda o, n: torchs.OneCycleLR(o, 0.05, n)),
    "one-cycle with a peak": (partial(torchs.OneCycleLR, max_lr=0.2), lambda o, n: torchs.OneCycleLR(o, 0.2, n)),
    "plateau": (partial(torchs.ReduceLROnPlateau, **WORSE), lambda o, n: torchs.ReduceLROnPlateau(o, **WORSE)),
    "warm restarts": (
        partial(torchs.CosineAnnealingWarmRestarts, T_0=2), lambda o, n: torchs.CosineAnnealingWarmRestarts(o, 2)
    ),
    "warm-up and cosine": (partial(WarmupDecay, warmup=0.25, decay="cosine"), warm_up),
    "cyclic": (partial(torchs.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=2, cycle_momentum=False),
               lambda o, n: torchs.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False)),
    "sequence": (partial(Sequence, schedulers=PARTS, milestones=[0.25, 0.5]), sequence),
    "restarts after a quarter": (
        partial(Sequence, schedulers=[torchs.CosineAnnealingLR] * 2, milestones=[0.25]), restarts
    ),
    "more parts than steps": (
        partial(Sequence, schedulers=[torchs.CosineAnnealingLR] * 3, milestones=[0.01, 0.02]),
        torchs.CosineAnnealingLR,
    ),
    "chain": (
        partial(Chain, schedulers=[torchs.CosineAnnealingLR, partial(torchs.StepLR, step_size=2, gamma=0.5)]), chain
    ),
}  # fmt: skip
CASES = [
    *((name, "step", 1) for name in SCHEDULES if name != "plateau"),
    *((name, "epoch", 1) for name in ("multi-step", "plateau", "warm restarts", "sequence", "chain")),
    ("cosine", "step", 3),
    ("sequence", "step", 3),
    ("exponential", "epoch", 2),
]


def by_hand(build, interval, frequency):
    """The rate of each optimizer step."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.Adam([parameter], lr=0.05)
    scheduler = build(optimizer, (EPOCHS * STEPS if interval == "step" else EPOCHS) // frequency)
    rates = []
    for epoch in range(1, EPOCHS + 1):
        for _ in range(STEPS):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if interval == "step" and len(rates) % frequency == 0:
                scheduler.step()
        if interval == "epoch" and epoch % frequency == 0:
            scheduler.step(*([1.0] if isinstance(scheduler, torchs.ReduceLROnPlateau) else []))
    return rates


@pytest.mark.parametrize(("name", "interval", "frequency"), CASES)
def test_rates_are_those_of_the_plain_loop(tmp_path, monkeypatch, name, interval, frequency):
    monkeypatch.setenv("PL_GLOBAL_SEED", "")
    recipe, build = SCHEDULES[name]
    schedule = Schedule(recipe, interval, frequency, "val/loss" if name == "plateau" else None)
    model, _ = fit(
        tmp_path, module=partial(Draws, schedule=schedule), options={}, max_epochs=EPOCHS, num_sanity_val_steps=0
    )
    found = [model.rates[epoch, batch] for epoch in range(EPOCHS) for batch in (0, 2, 4)]
    assert found == pytest.approx(by_hand(build, interval, frequency), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("scheduler", "says"),
    [
        (
            partial(Sequence, schedulers=PARTS, milestones=[0.5]),
            "milestones: there are 1 for 3 schedulers",
        ),
        (
            partial(Sequence, schedulers=PARTS, milestones=[0.5, 0.5]),
            "milestones: [0.5, 0.5] are steps [20, 20] of 40",
        ),
        (partial(Sequence, schedulers=PARTS, milestones=[10, 50]), "let them rise, up to the length"),
        (
            partial(Sequence, schedulers=[torchs.CosineAnnealingLR, torchs.StepLR], milestones=[5]),
            "model.schedule.scheduler.schedulers[1]: 'step_size' is not set; it is required",
        ),
        (partial(Chain, schedulers=[]), "Chain expects at least one scheduler"),
        (
            partial(
                Sequence, schedulers=[torchs.CosineAnnealingLR, partial(Chain, schedulers=PARTS)], milestones=[0.5]
            ),
            "schedulers[1]: Chain is made of schedulers itself",
        ),
        (
            partial(Sequence, schedulers=[torchs.LinearLR, torchs.OneCycleLR], milestones=[0.5]),
            "schedulers[1]: OneCycleLR sets rates of its own",
        ),
        (
            partial(Chain, schedulers=[torchs.ReduceLROnPlateau]),
            "Chain does not support `ReduceLROnPlateau` scheduler",
        ),
    ],
)
def test_what_is_refused(scheduler, says):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises((UserError, ValueError)) as caught:
        Schedule(scheduler, "step").configure(optimizer, steps=40, epochs=2)
    assert str(caught.value).startswith(says) or says in str(caught.value)
