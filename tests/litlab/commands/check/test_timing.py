"""How long a run takes, as ``fit --check`` foretells it from a few steps."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from litlab.callbacks import Compile
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


def test_steps_are_timed_all_over_the_training(checked, monkeypatch):
    clock = Clock(monkeypatch)
    # Late steps take three times as long: three of the five points are late, 3/5 * 0.3 + 2/5 * 0.1 = 0.22 seconds.
    out = checked(clock.drive(model(), lambda step: 0.1 if step < 90 else 0.3, 0.01))
    assert "step           │ 220 ms (mean of 45)" in out
    assert "validation     │ 100 ms" in out
    assert "time           │ about 39.9 s" in out  # 180 * 0.22 + 3 * 0.1
    assert clock.steps[:2] == [0, 1]
    assert [clock.steps[2 + 10 * point] for point in range(5)] == [162, 18, 90, 54, 126]


def test_a_step_is_all_its_batches(checked, monkeypatch):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: 0.1, 0.01), accumulate_grad_batches=4)
    assert "45 steps: 3 epochs of 15" in out
    assert "400 ms" in out
    assert "about 18.3 s" in out


def test_precision_and_limits_are_those_of_the_run(checked, monkeypatch):
    clock = Clock(monkeypatch)
    limits = {"limit_train_batches": 0.5, "limit_val_batches": 3}
    out = checked(clock.drive(model(), lambda step: 0.1, 0.01), precision="bf16-mixed", **limits)
    assert "cpu, bf16-mixed" in out
    assert "90 steps: 3 epochs of 30; 3 validations" in out
    assert "validation     │ 30 ms" in out


def test_few_slow_steps_are_enough(checked, monkeypatch):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: 30 if step < 90 else 60, 2))
    assert clock.steps == [0, 162]  # 0.9 of 180
    assert clock.validated == 3  # of 10: longer than 5 seconds
    assert "step           │ 60 s (mean of 1)" in out
    assert "validation     │ 20 s" in out


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5])
def test_epochs_of_few_steps(checked, monkeypatch, batches):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: 0.1, 0.01), Data(train=5 * batches), max_epochs=2)
    assert f"{2 * batches} steps: 2 epochs of {batches}; 2 validations" in out
    assert "100 ms (mean of" in out if batches > 3 else "100 ms (of the first ones" in out
    assert len(clock.steps) <= batches
    assert clock.validated == 10


def test_no_more_steps_than_max_steps(checked, monkeypatch):
    clock = Clock(monkeypatch)
    out = checked(clock.drive(model(), lambda step: 0.1, 0.01), max_epochs=-1, max_steps=3)
    assert "3 steps: 0.05 epochs of 60; 0 validations" in out
    assert len(clock.steps) <= 3


def test_without_an_end_there_is_no_time(checked):
    out = checked(model(), max_epochs=-1)
    assert "steps without end: epochs of 60" in out
    assert "about" not in out


class Stream(IterableDataset):
    """Batches without a number."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.batches):
            yield torch.randn(5, 6, generator=generator), torch.arange(5) % 4


@pytest.mark.parametrize(("seconds", "steps"), [(0.1, 52), (30, 2)])
def test_streams(checked, monkeypatch, seconds, steps):
    data, clock = Data(), Clock(monkeypatch)
    monkeypatch.setattr(data, "train_dataloader", lambda: DataLoader(Stream(10_000), batch_size=None))
    monkeypatch.setattr(data, "val_dataloader", lambda: DataLoader(Stream(10), batch_size=None))
    module = clock.drive(model(), lambda step: seconds, seconds)
    out = checked(module, data, max_epochs=-1, max_steps=100)
    assert f"validation     │ {'1 s' if seconds < 1 else 'unknown'}" in out
    assert "100 steps" in out
    assert len(clock.steps) == steps


@pytest.mark.filterwarnings("ignore:Total length of `list`")
def test_without_validation(checked):
    assert "validation     │ none" in checked(model(), Data(val=0))


def test_what_it_does_not_know_is_said(checked):
    clock = {"val_check_interval": "00:01:00:00"}
    out = checked(model(), callbacks=[Compile("default")], strategy="ddp", devices=2, **clock)
    text = " ".join(out.replace("│", " ").split())
    assert "torch.compile: its time" in text
    assert "2 processes" in text
    assert "90 steps: 3 epochs of 30" in out  # each process has half of the batches
