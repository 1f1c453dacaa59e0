"""The learning-rate finder: what it finds, and that the run it precedes is that of the rate given by hand."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from litlab.callbacks import LRFinder
from litlab.checkpointing.lightning_callbacks import AccumulationSchedule
from litlab.errors import UserError
from litlab.optim import GroupRule, ParamGroups, Schedule
from litlab.optim.recipe import rates_of, scale_rates
from litlab.optim.warmup_decay import WarmupDecay
from tests.litlab.callbacks.finding import assert_same, train
from tests.litlab.checkpointing.interrupting import fit as fit_in_processes
from tests.litlab.conftest import CONFIGS

FOLDER = Path("lightning_logs/images/version_0")
FINDER = "--trainer.callbacks=[{class_path: LRFinder, init_args: {num_training_steps: 30, min_lr: 1e-4}}]"


# The optimizer's settings


class TwoRates(torch.optim.SGD):
    """Vectors have a rate of their own."""

    def __init__(self, params, lr=0.1, vector_lr=2.0, momentum=0.0):
        params = list(params)
        groups = [
            {"params": [p for p in params if p.ndim > 1], "lr": lr},
            {"params": [p for p in params if p.ndim < 2], "lr": vector_lr},
        ]
        super().__init__(groups, lr=lr, momentum=momentum)


def test_several_rates_keep_their_proportions():
    recipe = scale_rates(partial(TwoRates, momentum=0.5), 0.3)
    assert rates_of(recipe) == {"lr": 0.3, "vector_lr": pytest.approx(6.0)}
    optimizer = recipe(nn.Linear(2, 2).parameters())
    assert [group["lr"] for group in optimizer.param_groups] == [0.3, pytest.approx(6.0)]
    assert optimizer.param_groups[0]["momentum"] == 0.5


# As if it had not run


SETTINGS = {
    "plain": {},
    "schedule": {"schedule": Schedule(partial(WarmupDecay, warmup=0.2), "step")},
    "groups": {"param_groups": ParamGroups([GroupRule("network.3", 4)], decay_norms_and_biases=False)},
    "accumulation": {"accumulate_grad_batches": 2},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_run_is_that_of_the_rate_given_by_hand(tmp_path, settings):
    """In every bit: weights, statistics, metrics, random numbers, optimizer, and what the model keeps by itself."""
    finder = LRFinder(1e-4, 10, num_training_steps=60)  # of 5 batches an epoch
    found = train(tmp_path, partial(torch.optim.Adam, lr=0.05), finder, **settings)
    assert finder.found not in (None, 0.05)
    by_hand = train(tmp_path, partial(torch.optim.Adam, lr=finder.found), **settings)
    assert_same(found, by_hand)
    assert math.isfinite(float(found["train/loss"]))


def test_several_rates_by_hand(tmp_path):
    finder = LRFinder(1e-4, 10, num_training_steps=60)
    found = train(tmp_path, TwoRates, finder)
    by_hand = train(tmp_path, partial(TwoRates, lr=finder.found, vector_lr=2.0 * (finder.found / 0.1)))
    assert_same(found, by_hand)


def test_the_search_is_the_same_with_one_cycle(tmp_path):
    """Which begins with a fraction of the rate."""
    schedule = Schedule(partial(OneCycleLR, cycle_momentum=False), "step")
    finders = [LRFinder(1e-4, 10, num_training_steps=60) for _ in range(2)]
    train(tmp_path, partial(torch.optim.Adam, lr=0.05), finders[0])
    train(tmp_path, partial(torch.optim.Adam, lr=0.05), finders[1], schedule=schedule)
    assert finders[0].found == finders[1].found


def test_the_search_accumulates_as_the_first_epoch_does(tmp_path):
    recipe, finders = partial(torch.optim.Adam, lr=0.05), [LRFinder(1e-4, 10, num_training_steps=60) for _ in range(2)]
    train(tmp_path, recipe, finders[0], accumulate_grad_batches=2)
    train(tmp_path, recipe, finders[1], AccumulationSchedule({0: 2, 1: 1}))
    assert finders[0].found == finders[1].found


class TensorRate(torch.optim.Adam):
    """Insists on rates in tensors, as torchao's optimizers do."""

    def __init__(self, params, lr=0.05) -> None:
        super().__init__(params, lr=torch.tensor(lr))

    def step(self, closure=None):
        assert all(isinstance(group["lr"], torch.Tensor) for group in self.param_groups)
        return super().step(closure)


def test_a_rate_in_a_tensor_stays_there(tmp_path):
    finder = LRFinder(1e-4, 10, num_training_steps=60)
    found = train(tmp_path, TensorRate, finder)
    assert_same(found, train(tmp_path, partial(TensorRate, lr=finder.found)))


# In a run


def last(folder: Path) -> dict:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)


def test_the_overlay_repeats_the_run_and_a_resumed_one_keeps_the_rate(fit_images, run):
    small = ("--ema.decay=0.9", "--nan_guard.action=skip", "--test_after_fit=false", "--trainer.max_epochs=1")
    done = fit_images("fit", *small, FINDER)
    assert done.code == 0, done.err
    overlay = FOLDER / "lr_finder.yaml"
    assert f"({overlay})" in done.err
    optimizer = yaml.safe_load(overlay.read_text())["model"]["init_args"]["optimizer"]
    found = optimizer["init_args"]["lr"]
    assert f"LRFinder: model.optimizer.lr is {found:g} instead of 0.1" in done.err
    assert (FOLDER / "lr_finder.png").stat().st_size > 5000
    done = fit_images("fit", *small, "--config", overlay, "--trainer.callbacks=[]")
    assert done.code == 0, done.err
    one, other = last(FOLDER), last(FOLDER.with_name("version_1"))
    for part in ("state_dict", "current_model_state", "optimizer_states", "lr_schedulers"):
        assert_same(one[part], other[part], part)
    metrics = [
        yaml.safe_load((folder / "metrics.json").read_text()) for folder in (FOLDER, FOLDER.with_name("version_1"))
    ]
    assert metrics[0]["val"] == metrics[1]["val"]
    assert one["optimizer_states"][0]["param_groups"][0]["initial_lr"] == found
    assert one["optimizer_states"][0]["param_groups"][0]["momentum"] == 0.9  # the overlay leaves the rest as it was
    for name in ("images/version_0", "images/version_1"):  # longer: the schedule is built anew
        done = run("fit", "--resume", name, "--trainer.max_epochs=2")
        assert done.code == 0, done.err
        assert ("the run keeps the learning rate that was found" in done.err) == (name == "images/version_0")
    assert_same(last(FOLDER)["state_dict"], last(FOLDER.with_name("version_1"))["state_dict"])
    assert_same(last(FOLDER)["lr_schedulers"], last(FOLDER.with_name("version_1"))["lr_schedulers"])


def test_it_can_end_with_the_search(fit_images):
    done = fit_images("fit", FINDER, "--trainer.callbacks.train=false")
    assert done.code == 0, done.err
    assert "epoch 1/2" not in done.out
    assert (FOLDER / "lr_finder.yaml").is_file()
    assert not (FOLDER / "checkpoints").exists()
    assert yaml.safe_load((FOLDER / "status.json").read_text())["status"] == "finished"


def test_several_processes_find_one_rate(tmp_path, images):
    data = ["--data.dataset=folder", f"--data.path={images}", "--data.batch_size=20", "--trainer.max_epochs=1"]
    ddp = ["--trainer.accelerator=cpu", "--trainer.strategy=ddp", "--trainer.devices=2", "--test_after_fit=false"]
    code = fit_in_processes(tmp_path, "--config", str(CONFIGS / "images.yaml"), *data, *ddp, FINDER, count=2)
    assert code == 0, (tmp_path / "printed_0.txt").read_text()
    found = yaml.safe_load((tmp_path / FOLDER / "lr_finder.yaml").read_text())["model"]["init_args"]["optimizer"]
    for rank in range(2):  # each has the learning rate; the first one says so
        assert ("LRFinder: " in (tmp_path / f"printed_{rank}.txt").read_text()) == (rank == 0)
    checkpoint = last(tmp_path / FOLDER)
    assert checkpoint["lr_finder"] == {"found": found["init_args"]["lr"], "before": 0.1}
    assert checkpoint["global_step"] == 160 // 40


# What it refuses


class StaysThere(torch.optim.SGD):
    def step(self, closure=None):
        return closure()


@pytest.mark.parametrize(
    ("recipe", "schedule", "message"),
    [
        (partial(torch.optim.Adam, lr=0.05), Schedule(partial(OneCycleLR, max_lr=0.1), "step"),
         r"LRFinder sets the optimizer's lr, and OneCycleLR \(model.schedule\) has rates that do not follow it"),
        (partial(torch.optim.Adam, lr=0.0), None, "trainer.callbacks: LRFinder sets model.optimizer.lr, which Watched"),
        (StaysThere, None, r"LRFinder found no model.optimizer.lr from 1e-06 to 10 that lets the loss fall"),
    ],
    ids=["schedule", "no rate", "no fall"],
)  # fmt: skip
def test_what_can_not_be_found_is_one_line(tmp_path, recipe, schedule, message):
    with pytest.raises(UserError, match=message) as error:
        train(tmp_path, recipe, LRFinder(), schedule=schedule)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("min_lr: 20", "trainer.callbacks.LRFinder.max_lr: 10.0 is not above min_lr (20"),
        ("num_training_steps: 3", "num_training_steps: 3 is not valid; it must be at least 20"),
    ],
)
def test_bad_settings_are_one_line(fit_images, setting, message):
    done = fit_images("fit", f"--trainer.callbacks=[{{class_path: LRFinder, init_args: {{{setting}}}}}]")
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
