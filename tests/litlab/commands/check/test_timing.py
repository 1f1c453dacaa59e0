"""How long a run takes, as ``fit --check`` foretells it from a few steps."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from litlab.tasks import Classifier
from litlab.util import steps as probe
from tests.litlab.commands.check.conftest import Data, model

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*tensorboardX")


class Clock:
    """Time that passes only when a module does a step."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        self.steps: list[int] = []  # global steps of the training batches
        self.validated = 0
        monkeypatch.setattr(probe.time, "perf_counter", lambda: self.now)

    def drive(self, module: Classifier, train, val: float) -> Classifier:
        """Lets a training step take `train(global_step)` seconds and a validation step `val`."""
        training_step, validation_step = module.training_step, module.validation_step

        def timed_training_step(batch, batch_idx):
            self.now += train(module.global_step)
            self.steps.append(module.global_step)
            return training_step(batch, batch_idx)

        def timed_validation_step(batch, batch_idx):
            self.now += val
            self.validated += 1
            return validation_step(batch, batch_idx)

        module.training_step, module.validation_step = timed_training_step, timed_validation_step
        return module


def test_the_steps_after_a_warm_up_are_timed(checked, monkeypatch):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: 0.1 if step < 2 else 0.2, 0.01))
    for row in ("step 200 ms", "validation 100 ms", "time about 36.3 s at the pace"):
        assert row in out  # 180 * 0.2 + 3 * 0.1
    assert clock.steps == list(range(52))  # for five seconds, by the second step


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"accumulate_grad_batches": 4}, ["45 steps, 15 an epoch", "400 ms", "about 18.3 s"]),
        (
            {"limit_train_batches": 0.5, "limit_val_batches": 3, "precision": "bf16-mixed"},
            ["cpu, bf16-mixed", "90 steps, 30 an epoch; 3 validations", "validation 30 ms"],
        ),
        ({"max_epochs": -1, "max_steps": 3}, ["3 steps, 60 an epoch; 0 validations", "about 300 ms"]),
    ],
    ids=str,
)
def test_settings_of_the_run(checked, monkeypatch, settings, rows):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: 0.1, 0.01), **settings)
    assert [row for row in rows if row not in out] == []
    assert len(clock.steps) // settings.get("accumulate_grad_batches", 1) <= settings.get("max_steps", 60)


@pytest.mark.parametrize(
    ("batches", "seconds", "steps", "validated"), [(1, 0.1, 1, 10), (4, 0.1, 4, 10), (60, 30, 1, 3)]
)
def test_epochs_of_few_or_slow_steps(checked, monkeypatch, batches, seconds, steps, validated):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: seconds, seconds / 15), Data(train=5 * batches), max_epochs=2)
    assert f"{2 * batches} steps, {batches} an epoch; 2 validations" in out
    assert ("step 30 s validation 20 s" if seconds == 30 else "step 100 ms validation 66.7 ms") in out
    assert (len(clock.steps), clock.validated) == (steps, validated)  # a validation is cut short after 5 seconds


class Stream(IterableDataset):
    """Batches without a number."""

    def __iter__(self):
        for _ in range(20):
            yield torch.randn(5, 6), torch.arange(5) % 4


def test_a_stream_that_ends_before_the_steps_are_timed(checked, monkeypatch):
    data, clock = Data(), Clock(monkeypatch)
    monkeypatch.setattr(data, "train_dataloader", lambda: DataLoader(Stream(), batch_size=None))
    monkeypatch.setattr(data, "val_dataloader", lambda: DataLoader(Stream(), batch_size=None))
    out = checked(clock.drive(model(), lambda step: 0.1, 1), data, max_epochs=-1, max_steps=100)
    assert "step 100 ms" in out
    assert "validation unknown" in out  # it is cut short, and its length is not known
    assert "100 steps, unlimited an epoch" in out
    assert len(clock.steps) == 20


@pytest.mark.filterwarnings("ignore:Total length of `list`")
def test_without_validation(checked):
    assert "validation none" in checked(model(), Data(val=0))
