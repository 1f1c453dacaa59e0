"""The finders: what they find, and that the run that follows is that of the setting given by hand."""

import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.plugins import FSDPPrecision, MixedPrecision
from lightning.pytorch.strategies import FSDPStrategy, SingleDeviceStrategy
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from litlab.callbacks import AGC, BatchFinder, LRFinder
from litlab.callbacks import finder as finder_module
from litlab.callbacks.finder import suggest_rate
from litlab.callbacks.second_trainer import second_trainer
from litlab.checkpointing.lightning_callbacks import AccumulationSchedule
from litlab.errors import UserError
from litlab.optim import GroupRule, ParamGroups, Schedule, WarmupDecay
from litlab.optim.recipe import rates_of, scale_rates
from litlab.tasks import Classifier
from tests.litlab.checkpointing.in_process import Data, Draws

FOLDER = Path("lightning_logs/images/version_0")
LR = "{class_path: LRFinder, init_args: {num_training_steps: 30, min_lr: 1e-4}}"
ADAM = partial(torch.optim.Adam, lr=0.05)


class Watched(Draws):
    """Keeps what its run begins with, and has state outside of its weights."""

    def __init__(self, optimizer, schedule=None, param_groups=None) -> None:
        Classifier.__init__(
            self, nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)), num_classes=3,
            optimizer=optimizer, schedule=schedule, param_groups=param_groups,
        )  # fmt: skip
        self.stop = None
        self.drawn, self.rates, self.ended, self.batches = {}, {}, [], 0
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def training_step(self, batch, batch_idx):
        self.batches += 1
        self.seen += batch[0].sum()
        self.network[2].p = min(0.8, self.network[2].p + 0.01)  # a setting that changes from step to step
        return super().training_step(batch, batch_idx)


class Loaded(Data):
    """20 samples; counts what happens to it."""

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__(batch_size)
        self.set_up = 0

    def setup(self, stage=None):
        super().setup(stage)
        self.set_up += 1
        assert self.set_up == 1


def train(
    folder: Path, recipe, *callbacks, data: Callable[[], Data] = Loaded, schedule=None, param_groups=None, **settings
):
    """A fit whose random numbers are those of one stream: nothing is seeded on the way."""
    seed_everything(3, verbose=False)
    model, data = Watched(recipe, schedule, param_groups), data()
    trainer = Trainer(
        default_root_dir=folder, accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
        callbacks=list(callbacks), **settings,
    )  # fmt: skip
    trainer.fit(model, data)
    assert data.trainer is trainer
    return {
        **model.state_dict(), **trainer.callback_metrics, "seen": model.seen, "batches": model.batches,
        "dropout": model.network[2].p, "drawn": model.drawn, "rates": model.rates, "ended": model.ended,
        "optimizer": trainer.optimizers[0].state_dict(), "steps": trainer.global_step,
        "random": (torch.rand(3), np.random.rand(), random.random()), "files": list(folder.iterdir()),
    }  # fmt: skip


def assert_same(one, other, name=""):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), name
    elif isinstance(one, dict | list | tuple):
        assert len(one) == len(other), name
        for key in one if isinstance(one, dict) else range(len(one)):
            assert_same(one[key], other[key], f"{name}/{key}")
    else:
        assert one == other, name


def lr_finder() -> LRFinder:
    return LRFinder(1e-4, 10, num_training_steps=60)  # an epoch has 5


# What is read off the curve


def curve(fall_at: float, rise_at: float, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rates = np.geomspace(1e-6, 10, 100)
    losses = 2.0 - 1.5 / (1 + (fall_at / rates) ** 2) + (rates / rise_at) ** 2
    return rates, losses + noise * np.random.default_rng(0).normal(size=100)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_steepest_fall_is_suggested(noise):
    found = suggest_rate(*curve(fall_at=1e-3, rise_at=1.0, noise=noise))
    assert found is not None
    assert math.log10(found) == pytest.approx(-3, abs=0.35)


def test_it_is_the_fall_per_factor_not_per_unit():
    """Noise at the lowest rates, over which the same difference is a huge slope, does not win."""
    rates, losses = curve(fall_at=1e-2, rise_at=5.0)
    losses[12] -= 0.01
    assert suggest_rate(rates, losses) == pytest.approx(1e-2, rel=0.6)


def test_a_divergence_hides_nothing():
    rates, losses = curve(fall_at=1e-3, rise_at=1.0)
    losses[-8:] = 1e30
    assert suggest_rate(rates, losses) == pytest.approx(1e-3, rel=1.0)


@pytest.mark.parametrize("losses", [np.full(50, 2.0), 2.0 + 0.1 * np.arange(50), np.ones(5), np.ones(0)])
def test_no_fall_no_suggestion(losses):
    assert suggest_rate(1e-6 * 1.3 ** np.arange(len(losses)), losses) is None


@pytest.mark.parametrize("seed", range(5))
def test_where_the_fall_is_lost_in_the_noise_the_rise_counts(seed):
    rates, _ = curve(1.0, 1.0)
    losses = 2 + 0.1 * np.random.default_rng(seed).normal(size=100)
    assert suggest_rate(rates, losses) is None
    found = suggest_rate(rates, losses + (rates / 0.1) ** 2)
    assert found is not None
    assert 2e-3 < found < 0.1


# As if it had not run: weights, statistics, metrics, random numbers, optimizer, and what the model keeps by itself


class TwoRates(torch.optim.SGD):
    """Vectors have a rate of their own."""

    def __init__(self, params, lr=0.1, vector_lr=2.0, momentum=0.0):
        params = list(params)
        groups = [
            {"params": [p for p in params if p.ndim > 1], "lr": lr},
            {"params": [p for p in params if p.ndim < 2], "lr": vector_lr},
        ]
        super().__init__(groups, lr=lr, momentum=momentum)


class TensorRate(torch.optim.Adam):
    """Insists on rates in tensors, as torchao's optimizers do."""

    def __init__(self, params, lr=0.05) -> None:
        super().__init__(params, lr=torch.tensor(lr))

    def step(self, closure=None):
        assert all(isinstance(group["lr"], torch.Tensor) for group in self.param_groups)
        return super().step(closure)


def test_several_rates_keep_their_proportions():
    recipe = scale_rates(partial(TwoRates, momentum=0.5), 0.3)
    assert rates_of(recipe) == {"lr": 0.3, "vector_lr": pytest.approx(6.0)}
    optimizer = recipe(nn.Linear(2, 2).parameters())
    assert [group["lr"] for group in optimizer.param_groups] == [0.3, pytest.approx(6.0)]
    assert optimizer.param_groups[0]["momentum"] == 0.5


CASES = {
    "plain": (ADAM, {}),
    "schedule": (ADAM, {"schedule": Schedule(partial(WarmupDecay, warmup=0.2), "step")}),
    "groups": (ADAM, {"param_groups": ParamGroups([GroupRule("network.3", 4)], decay_norms_and_biases=False)}),
    "accumulation": (ADAM, {"accumulate_grad_batches": 2}),
    "two rates": (TwoRates, {}),
    "a tensor": (TensorRate, {}),
}


@pytest.mark.parametrize(("recipe", "settings"), CASES.values(), ids=CASES)
def test_the_run_is_that_of_the_rate_given_by_hand(tmp_path, recipe, settings):
    finder = lr_finder()
    found = train(tmp_path, recipe, finder, **settings)
    assert finder.found not in (None, 0.05)
    assert_same(found, train(tmp_path, scale_rates(recipe, finder.found), **settings))
    assert math.isfinite(float(found["train/loss"]))


def test_the_search_is_the_same_with_one_cycle(tmp_path):
    """Which begins with a fraction of the rate."""
    finders = [lr_finder(), lr_finder()]
    train(tmp_path, ADAM, finders[0])
    train(tmp_path, ADAM, finders[1], schedule=Schedule(partial(OneCycleLR, cycle_momentum=False), "step"))
    assert finders[0].found == finders[1].found


def test_what_changes_a_step_comes_along(tmp_path, monkeypatch):
    agc, finders, settings = AGC(1e-3), [lr_finder(), lr_finder(), lr_finder()], []
    train(tmp_path, ADAM, finders[0], accumulate_grad_batches=2)
    train(tmp_path, ADAM, finders[1], AccumulationSchedule({0: 2}))
    assert finders[0].found == finders[1].found
    path = "litlab.callbacks.second_trainer.second_trainer"
    monkeypatch.setattr(path, lambda *a, **k: settings.append(a[1]) or second_trainer(*a, **k))
    train(tmp_path, ADAM, finders[2], agc)
    copies = [callback for callback in settings[0] if isinstance(callback, AGC)]
    assert len(copies) == 1
    assert copies[0] is not agc


@pytest.mark.parametrize("schedule", [None, Schedule(ReduceLROnPlateau, "epoch", monitor="val/loss")])
def test_the_run_is_that_of_the_batch_size_given_by_hand(tmp_path, schedule):
    """Also with a rate that follows the validation: there is none in a search, in the run that follows there is."""
    finder = BatchFinder("largest")
    found = train(tmp_path, ADAM, finder, schedule=schedule)
    assert finder.found == 4  # 8 are less than five batches
    assert_same(found, train(tmp_path, ADAM, schedule=schedule))
    finder = BatchFinder("largest", max_size=3)
    found = train(tmp_path, ADAM, finder, schedule=schedule)
    assert finder.found == 2
    assert_same(found, train(tmp_path, ADAM, data=partial(Loaded, 2), schedule=schedule))


# Which batch sizes are tried


@pytest.mark.parametrize(("take", "expected"), [("fastest", 8), ("largest", 32)])
def test_the_smallest_of_equally_fast_sizes_is_the_fastest(tmp_path, monkeypatch, take, expected):
    speeds = {2: 10.0, 4: 50.0, 8: 99.0, 16: 100.0, 32: 100.5, 64: None}
    monkeypatch.setattr(finder_module, "measure_speed", lambda trainer, module, size: speeds[size])
    finder = BatchFinder(take)
    train(tmp_path, ADAM, finder, limit_train_batches=1)
    assert finder.found == expected


def test_running_out_of_memory_is_an_outcome_and_other_errors_are_not(tmp_path, monkeypatch):
    original, room = Watched.training_step, 3

    def step(self, batch, batch_idx):
        if len(batch[0]) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return original(self, batch, batch_idx)

    monkeypatch.setattr(Watched, "training_step", step)
    finder = BatchFinder("largest")
    train(tmp_path, ADAM, finder)
    assert finder.found == 2
    room = 0
    with pytest.raises(UserError, match=r"data.batch_size: BatchFinder can't try batches of 2, which take too much"):
        train(tmp_path, ADAM, finder)
    monkeypatch.setattr(Watched, "training_step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, ADAM, finder)


def test_on_a_cpu_it_ends_where_the_memory_may(tmp_path, monkeypatch):
    monkeypatch.setattr(finder_module.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    with pytest.raises(UserError, match="BatchFinder can't try batches of 2"):
        train(tmp_path, ADAM, BatchFinder())


# In a run


def last(folder: Path) -> dict:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)


def test_the_overlays_repeat_the_run_and_a_resumed_one_keeps_what_was_found(fit_images, run):
    small = ("--ema.decay=0.9", "--data.batch_size=16", "--test_after_fit=false", "--trainer.max_epochs=1")
    largest = "{class_path: BatchFinder, init_args: {take: largest, max_size: 32}}"
    done = fit_images("fit", *small, f"--trainer.callbacks=[{largest}, {LR}]")
    assert done.code == 0, done.err
    overlays = [FOLDER / "batch_size.yaml", FOLDER / "lr.yaml"]
    assert yaml.safe_load(overlays[0].read_text()) == {"data": {"init_args": {"batch_size": 32}}}
    rate = yaml.safe_load(overlays[1].read_text())["model"]["init_args"]["optimizer"]["init_args"]["lr"]
    assert f"LRFinder: lr is {rate} instead of 0.1: by the curve of " in done.err
    assert f"({overlays[0]})" in done.err
    assert (FOLDER / "lr_finder.png").stat().st_size > 5000

    done = fit_images("fit", *small, *(flag for path in overlays for flag in ("--config", path)))
    assert done.code == 0, done.err
    folders = [FOLDER, FOLDER.with_name("version_1")]
    one, other = (last(folder) for folder in folders)
    for part in ("state_dict", "current_model_state", "optimizer_states", "lr_schedulers"):
        assert_same(one[part], other[part], part)
    assert one["global_step"] == 5  # 160 images
    assert one["optimizer_states"][0]["param_groups"][0]["initial_lr"] == rate
    assert one["optimizer_states"][0]["param_groups"][0]["momentum"] == 0.9  # the overlay leaves the rest as it was
    metrics = [yaml.safe_load((folder / "metrics.json").read_text()) for folder in folders]
    assert metrics[0]["val"] == metrics[1]["val"]

    for folder in folders:  # longer: the schedule is built anew
        done = run("fit", "--resume", f"images/{folder.name}", "--trainer.max_epochs=2")
        assert done.code == 0, done.err
    one, other = (last(folder) for folder in folders)
    assert one["global_step"] == 10
    assert_same(one["state_dict"], other["state_dict"])
    assert_same(one["lr_schedulers"], other["lr_schedulers"])


def test_it_can_end_with_the_search(fit_images):
    done = fit_images("fit", f"--trainer.callbacks=[{LR}]", "--trainer.callbacks.train=false")
    assert done.code == 0, done.err
    assert "epoch 1/2" not in done.out
    assert (FOLDER / "lr.yaml").is_file()
    assert not (FOLDER / "checkpoints").exists()
    assert yaml.safe_load((FOLDER / "status.json").read_text())["status"] == "finished"


# What they refuse


class StaysThere(torch.optim.SGD):
    def step(self, closure=None):
        return closure()


@pytest.mark.parametrize(
    ("finder", "recipe", "settings", "message"),
    [
        (LRFinder, partial(torch.optim.Adam, lr=0.0), {}, "trainer.callbacks: LRFinder needs a lr of model or data"),
        (LRFinder, StaysThere, {}, "LRFinder found no rate from 1e-06 to 10 that lets the loss fall in 100 steps"),
        (partial(LRFinder, num_training_steps=19), ADAM, {}, "LRFinder found no rate .* in 19 steps"),
        (LRFinder, ADAM, {"limit_train_batches": 0}, "LRFinder found no rate .* in 0 steps"),
        (BatchFinder, ADAM, {"limit_train_batches": 0}, "BatchFinder can't try batches of 2"),
        (BatchFinder, ADAM, {"data": partial(Data, 0)}, "BatchFinder needs a batch_size of model or data"),
    ],
)
def test_what_can_not_be_found_is_one_line(tmp_path, finder, recipe, settings, message):
    with pytest.raises(UserError, match=message) as error:
        train(tmp_path, recipe, finder(), **settings)
    assert "\n" not in str(error.value)


def test_rates_in_the_wrong_order_are_one_line(fit_images):
    done = fit_images("fit", "--trainer.callbacks=[{class_path: LRFinder, init_args: {min_lr: 20}}]")
    assert done.code == 2
    assert "trainer.callbacks.LRFinder.max_lr: 10.0 is not above min_lr (20" in done.err
    assert "Traceback" not in done.err


# The second Trainer


class Plugin(MixedPrecision):
    """A precision of the user's own."""


def test_a_plugin_of_the_users_own_is_copied_and_that_of_a_strategy_that_shards_is_not(tmp_path):
    """The latter works in all processes of the run at once, or not at all."""
    run = Trainer(default_root_dir=tmp_path, accelerator="cpu", logger=False, plugins=[Plugin("bf16-mixed", "cpu")])
    second = second_trainer(run, [])
    assert type(second.precision_plugin) is Plugin
    assert second.precision_plugin is not run.precision_plugin
    run._accelerator_connector.strategy = FSDPStrategy(
        accelerator=run.accelerator,
        parallel_devices=[run.strategy.root_device],
        precision_plugin=FSDPPrecision("bf16-mixed"),
    )
    second = second_trainer(run, [])
    assert isinstance(second.strategy, SingleDeviceStrategy)
    assert second.precision == run.precision
    assert type(second.precision_plugin) is MixedPrecision
