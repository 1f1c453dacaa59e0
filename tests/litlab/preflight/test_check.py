"""``fit --check``: what it finds, what it foretells, and that it leaves nothing."""

import math
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from litlab.callbacks import Compile
from litlab.cli.experiment_cli import ExperimentCLI
from litlab.cli.start import quiet, register_classes
from litlab.cli.user_message import user_message
from litlab.errors import UserError
from litlab.preflight import probe
from litlab.preflight.check import preflight
from litlab.tasks import Classifier, Forecaster
from tests.litlab.conftest import CONFIGS

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*tensorboardX")


class Data(LightningDataModule):
    """Samples of 6 numbers in 4 classes, in batches of 5: 60 batches to train on and 10 to validate on."""

    description = "numbers"
    num_classes = 4

    def __init__(self, train: int = 300, val: int = 50, nan: bool = False, labels: int = 4) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(300, 6, generator=generator)
        if nan:
            self.inputs[3, 2] = torch.nan
        self.labels = torch.arange(300) % labels
        self.train, self.val = train, val

    def _loader(self, samples: int) -> DataLoader:
        return DataLoader(TensorDataset(self.inputs[:samples], self.labels[:samples]), batch_size=5)

    def train_dataloader(self):
        return self._loader(self.train)

    def val_dataloader(self):
        return self._loader(self.val) if self.val else []


class Network(nn.Module):
    """Two layers. `dead` has a layer beside them that is not used, `zero` one that is multiplied by 0."""

    def __init__(self, kind: str = "", scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)
        with torch.no_grad():
            self.last.weight *= scale
        if kind in ("dead", "zero"):
            self.beside = nn.Linear(6, 4)

    def forward(self, inputs):
        logits = self.last(self.first(inputs).tanh())
        if self.kind == "zero":
            logits = logits + 0 * self.beside(inputs)
        if self.kind == "nan":
            logits = logits / (logits - logits)
        if self.kind == "root":
            logits = logits + (inputs - inputs + 0 * logits.sum()).abs().sqrt().sum()
        if self.kind == "large":
            torch.empty(2**55)
        return logits


def model(kind: str = "", scale: float = 1.0, classes: int = 4, lr: float = 0.01) -> Classifier:
    return Classifier(Network(kind, scale), num_classes=classes, optimizer=partial(torch.optim.SGD, lr=lr))


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Checks a run in an empty folder; returns what was printed. The run keeps checkpoints and curves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def check_it(module: Classifier, data: LightningDataModule | None = None, callbacks=(), **settings) -> str:
        run = Trainer(
            accelerator="cpu", logger=TensorBoardLogger(tmp_path), callbacks=[ModelCheckpoint(), *callbacks],
            enable_progress_bar=False, enable_model_summary=False, **{"max_epochs": 3, **settings},
        )  # fmt: skip
        preflight(run, module, data or Data())
        assert not list(tmp_path.iterdir())
        return capsys.readouterr().out

    return check_it


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


def test_what_a_good_run_is_told(check):
    out = check(model())
    for row in (
        "config         │ valid",
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


def test_parameters_without_a_gradient(check, capsys):
    with pytest.raises(UserError, match=r"no gradient reaches network.beside.weight, network.beside.bias; .*training_"):
        check(model("dead"))
    assert "Classifier: 120 parameters" in capsys.readouterr().out  # what was found before


def test_parameters_that_are_frozen_need_none(check):
    module = model("dead")
    module.network.beside.requires_grad_(False)
    assert "120 parameters, 92 of them trained" in check(module)


def test_parameters_whose_gradient_is_zero(check):
    out = check(model("zero"))
    assert "the gradient of network.beside.weight, network.beside.bias is zero" in out


def test_inputs_that_are_not_finite(check):
    with pytest.raises(UserError, match=r"loss is nan in the first step, .*batch holds NaN .*in tensor 0; correct"):
        check(model(), Data(nan=True))


def test_a_network_that_makes_nan_of_good_inputs(check):
    with pytest.raises(
        UserError, match=r"model: the loss is nan in the first step, though the batch is finite; check the n"
    ):
        check(model("nan"))


def test_a_gradient_that_is_not_finite_though_the_loss_is(check):
    with pytest.raises(
        UserError, match=r"model: the gradient of network.first.weight is not finite in the first steps"
    ):
        check(model("root"))


def test_a_learning_rate_that_is_far_too_high(check):
    with pytest.raises(UserError, match=r"model: the loss is nan after a few steps.*lower model.optimizer.lr"):
        check(model(lr=3e38))


def test_labels_that_are_no_class(check):
    with pytest.raises(
        UserError, match=r"model.num_classes: 4 does not fit a training batch with labels from 0 to 4; .*0 to 3"
    ):
        check(model(), Data(labels=5))


def test_another_number_of_classes_than_the_data_has(check):
    with pytest.raises(UserError, match=r"model.num_classes: 3 differs from the data's 4"):
        check(model(classes=3))


def test_a_loss_that_starts_far_too_high(check):
    assert "times as high as that of a guess" in check(model(scale=100))


def test_a_loss_that_starts_low_is_no_fault(check, monkeypatch):
    module = model()
    monkeypatch.setattr(module, "expected_loss", lambda batch: 100.0)
    out = check(module)
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
def test_nothing_to_train(check, settings):
    with pytest.raises(UserError, match="there is nothing to train"):
        check(model(), **settings)


def test_too_little_memory(check):
    with pytest.raises(UserError, match=r"out of memory \(peak .*\): try "):
        check(model("large"))


def test_steps_are_timed_all_over_the_training(check, monkeypatch):
    clock = Clock(monkeypatch)
    # Late steps take three times as long: three of the five points are late, 3/5 * 0.3 + 2/5 * 0.1 = 0.22 seconds.
    out = check(clock.drive(model(), lambda step: 0.1 if step < 90 else 0.3, 0.01))
    assert "step           │ 220 ms (mean of 45)" in out
    assert "validation     │ 100 ms" in out
    assert "time           │ about 39.9 s" in out  # 180 * 0.22 + 3 * 0.1
    assert clock.steps[:2] == [0, 1]
    assert [clock.steps[2 + 10 * point] for point in range(5)] == [162, 18, 90, 54, 126]


def test_a_step_is_all_its_batches(check, monkeypatch):
    clock = Clock(monkeypatch)
    out = check(clock.drive(model(), lambda step: 0.1, 0.01), accumulate_grad_batches=4)
    assert "45 steps: 3 epochs of 15" in out
    assert "400 ms" in out
    assert "about 18.3 s" in out


def test_precision_and_limits_are_those_of_the_run(check, monkeypatch):
    clock = Clock(monkeypatch)
    limits = {"limit_train_batches": 0.5, "limit_val_batches": 3}
    out = check(clock.drive(model(), lambda step: 0.1, 0.01), precision="bf16-mixed", **limits)
    assert "cpu, bf16-mixed" in out
    assert "90 steps: 3 epochs of 30; 3 validations" in out
    assert "validation     │ 30 ms" in out


def test_few_slow_steps_are_enough(check, monkeypatch):
    clock = Clock(monkeypatch)
    out = check(clock.drive(model(), lambda step: 30 if step < 90 else 60, 2))
    assert clock.steps == [0, 162]  # 0.9 of 180
    assert clock.validated == 3  # of 10: longer than 5 seconds
    assert "step           │ 60 s (mean of 1)" in out
    assert "validation     │ 20 s" in out


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5])
def test_epochs_of_few_steps(check, monkeypatch, batches):
    clock = Clock(monkeypatch)
    out = check(clock.drive(model(), lambda step: 0.1, 0.01), Data(train=5 * batches), max_epochs=2)
    assert f"{2 * batches} steps: 2 epochs of {batches}; 2 validations" in out
    assert "100 ms (mean of" in out if batches > 3 else "100 ms (of the first ones" in out
    assert len(clock.steps) <= batches
    assert clock.validated == 10


def test_no_more_steps_than_max_steps(check, monkeypatch):
    clock = Clock(monkeypatch)
    out = check(clock.drive(model(), lambda step: 0.1, 0.01), max_epochs=-1, max_steps=3)
    assert "3 steps: 0.05 epochs of 60; 0 validations" in out
    assert len(clock.steps) <= 3


def test_without_an_end_there_is_no_time(check):
    out = check(model(), max_epochs=-1)
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
def test_streams(check, monkeypatch, seconds, steps):
    data, clock = Data(), Clock(monkeypatch)
    monkeypatch.setattr(data, "train_dataloader", lambda: DataLoader(Stream(10_000), batch_size=None))
    monkeypatch.setattr(data, "val_dataloader", lambda: DataLoader(Stream(10), batch_size=None))
    module = clock.drive(model(), lambda step: seconds, seconds)
    out = check(module, data, max_epochs=-1, max_steps=100)
    assert f"validation     │ {'1 s' if seconds < 1 else 'unknown'}" in out
    assert "100 steps" in out
    assert len(clock.steps) == steps


@pytest.mark.filterwarnings("ignore:Total length of `list`")
def test_without_validation(check):
    assert "validation     │ none" in check(model(), Data(val=0))


def test_what_it_does_not_know_is_said(check):
    clock = {"val_check_interval": "00:01:00:00"}
    out = check(model(), callbacks=[Compile("default")], strategy="ddp", devices=2, **clock)
    text = " ".join(out.replace("│", " ").split())
    assert "torch.compile: its time" in text
    assert "2 processes" in text
    assert "validations by time" in text
    assert "90 steps: 3 epochs of 30" in out  # each process has half of the batches


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits_the_terminal(check, monkeypatch, columns):
    monkeypatch.setattr(Data, "description", "many words " * 30)
    module = model()
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, check(module).splitlines())) == columns


# From the command line


class Checking(ExperimentCLI):
    """Checks in the place of a fit."""

    def _run_subcommand(self, subcommand: str) -> None:
        preflight(self.trainer, self.model, self.datamodule)


@pytest.fixture
def from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def check_it(config: Path, *flags: str) -> str:
        monkeypatch.setattr(sys, "argv", ["acme", "fit", "--config", str(config), *flags])
        quiet()
        register_classes()
        Checking()
        return capsys.readouterr().out

    return check_it


@pytest.mark.parametrize(
    ("config", "guess"), [("images.yaml", math.log(10)), ("text.yaml", math.log(4)), ("series.yaml", None)]
)
def test_the_experiments(from_the_command_line, short, tmp_path, config, guess):
    flags = [*short(CONFIGS / config), "--trainer.precision=32-true"]
    out = from_the_command_line(CONFIGS / config, *flags)
    assert "1 epochs of" in out
    assert "warning" not in out
    assert "a guess" in out if guess is None else f"(a guess: {guess:.4g})" in out
    assert {path.name for path in tmp_path.iterdir()} <= {"data"}
    assert {path.name for path in tmp_path.glob("data/*")} <= {"cache"}


def test_the_flag(run, short, tmp_path):
    flags = [*short(CONFIGS / "series.yaml"), "--check"]
    done = run("fit", "--config", CONFIGS / "series.yaml", *flags)
    assert done.code == 0, done.err
    assert "Preflight" in done.out
    assert not list(tmp_path.iterdir())
    done = run("fit", "--config", CONFIGS / "series.yaml", *flags, "--model.optimizer.lr", "1e30")
    assert done.code == 2
    assert "error: model: the loss is " in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.iterdir())


def test_data_that_is_damaged_is_one_line(from_the_command_line, short, capsys, tmp_path):
    (tmp_path / "photos/train/cat").mkdir(parents=True)
    (tmp_path / "photos/train/dog").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / f"photos/train/{name}/1.png").write_bytes(b"no image")
    flags = [*short(CONFIGS / "images.yaml"), f"--data.path={tmp_path / 'photos'}", "--data.image_size=[32, 32]"]
    with pytest.raises(UserError) as raised:
        from_the_command_line(CONFIGS / "images.yaml", *flags)
    assert "1.png" in (user_message(raised.value) or "")
    assert "Preflight" not in capsys.readouterr().out
