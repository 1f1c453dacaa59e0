"""ExactResume by itself, in this process; whole commands, signals, workers and ranks are in test_resume_matrix.py."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import Compile
from litlab.checkpointing.lightning_callbacks import AccumulationSchedule
from litlab.checkpointing.resume import KEY
from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay
from litlab.util.steps import steps_of_run
from tests.litlab.checkpointing.in_process import BATCHES, EACH_STEP, Data, Draws, Interrupted, fit, saving, trainer
from tests.litlab.checkpointing.resuming import leaves, same

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers", "ignore:.*logging interval", "ignore:Checkpoint directory"
)


def means(fitting: Trainer) -> dict[str, float]:
    return {name: value.item() for name, value in fitting.callback_metrics.items()}


PLACES = [
    ("batch", 1, 0), ("batch", 1, 1), ("batch", 1, 4),
    ("validation", 1, 0), ("validation", 1, 1), ("end", 1), ("batch", 0, 3),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _seed(monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "")  # seed_everything sets it for all tests that follow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PL_GLOBAL_SEED", "")
        return {
            name: fit(tmp_path_factory.mktemp(name), **settings)
            for name, settings in {
                "plain": {},
                "none": {"limit_val_batches": 0},
                "often": {"val_check_interval": 3},
                "three epochs": {"max_epochs": 3},
            }.items()
        }


def check(expected: tuple[Draws, Trainer], parts: list[Draws], fitting: Trainer) -> None:
    """That the parts of an interrupted run together are the expected one."""
    whole, fitted = expected
    drawn = {}
    for part in parts:
        drawn |= part.drawn
    assert drawn == whole.drawn
    assert parts[-1].drawn.keys() != whole.drawn.keys(), "it went on, it did not begin again"
    assert {end for part in parts for end in part.ended} == set(whole.ended)
    assert means(fitting) == means(fitted)
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, parts[-1].state_dict()[name]), name


@pytest.mark.parametrize("stop", PLACES, ids=str)
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(tmp_path, whole, stop):
    before, _ = fit(tmp_path, stop)
    resumed, fitting = fit(tmp_path, resume=True)
    check(whole["plain"], [before, resumed], fitting)


@pytest.mark.parametrize(
    ("kind", "settings", "stop"),
    [
        ("none", {"limit_val_batches": 0}, ("end", 0)),
        ("none", {"limit_val_batches": 0}, ("batch", 1, 0)),
        ("often", {"val_check_interval": 3}, ("validation", 1, 0)),
        ("often", {"val_check_interval": 3}, ("batch", 1, 3)),
    ],
    ids=str,
)
def test_what_follows_a_batch_is_not_left_out(tmp_path, whole, kind, settings, stop):
    """The end of an epoch without validation; a validation in the middle, and of an accumulation at that."""
    before, _ = fit(tmp_path, stop, **settings)
    resumed, fitting = fit(tmp_path, resume=True, **settings)
    check(whole[kind], [before, resumed], fitting)


@pytest.mark.parametrize("options", [{}, EACH_STEP], ids=["each epoch", "each step"])
@pytest.mark.parametrize("further", [-1, 9], ids=str)
def test_an_epoch_that_max_steps_has_cut_short_goes_on(tmp_path, whole, options, further):
    """Neither as the next epoch nor from its start, and with the sums of its first part."""
    first, before = fit(tmp_path, options=options, max_steps=4)
    assert (before.global_step, first.drawn.keys() & {(1, 1), (1, 2)}) == (4, {(1, 1)})
    second, fitting = fit(tmp_path, resume=True, options=options, max_epochs=3, max_steps=further)
    expected, fitted = whole["three epochs"]
    assert (fitting.global_step, fitting.current_epoch) == (fitted.global_step, 3)
    assert {**first.drawn, **second.drawn} == expected.drawn
    assert not second.drawn.keys() & first.drawn.keys()
    assert means(fitting) == means(fitted)
    for name, weight in expected.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name


def test_another_seed_draws_other_numbers(tmp_path, whole):
    other = Draws()
    seed_everything(6, verbose=False)
    trainer(tmp_path, enable_checkpointing=False).fit(other, Data())
    drawn = whole["plain"][0].drawn
    assert len(set(drawn.values())) == len(drawn) == 2 * BATCHES + 4
    assert not set(drawn.values()) & set(other.drawn.values())


def test_another_number_of_processes(tmp_path, whole):
    """Within an epoch it is refused, from its end nothing depends on it."""
    expected = means(whole["plain"][1])

    def as_if_of_two(path: Path) -> None:
        checkpoint = torch.load(path, weights_only=True)
        assert len(checkpoint[KEY]) == 1
        checkpoint[KEY].append({**checkpoint[KEY][0], "data_rank": 1})
        torch.save(checkpoint, path)

    fit(tmp_path, ("batch", 1, 3))
    as_if_of_two(tmp_path / "last.ckpt")
    with pytest.raises(UserError, match=r"^trainer.devices: .* that 2 data-parallel processes shared, .* makes 1 of"):
        fit(tmp_path, resume=True)
    fit(tmp_path, ("batch", 1, 0))
    as_if_of_two(tmp_path / "last.ckpt")
    _, fitting = fit(tmp_path, resume=True)
    assert means(fitting) == expected


def test_the_best_checkpoint_is_known_in_a_folder_that_was_moved(tmp_path):
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    fit(first, ("batch", 1, 0), options={"monitor": "val/loss"})
    shutil.move(first, second)
    best = next(second.glob("epoch=0*.ckpt"))

    def resumed(folder: Path) -> ModelCheckpoint:
        keeps = saving(folder, monitor="val/loss")
        trainer(folder, keeps, max_epochs=1).fit(Draws(), Data(), ckpt_path=second / "last.ckpt", weights_only=True)
        return keeps

    assert resumed(other).best_k_models == {}  # another run: its files are none of this one's
    keeps = resumed(second)
    assert keeps.best_model_path == str(best)
    assert list(keeps.best_k_models) == [str(best)]


SCHEDULERS = {
    "warm-up": WarmupDecay,
    "cosine": lr_scheduler.CosineAnnealingLR,
    "polynomial": partial(lr_scheduler.PolynomialLR, total_iters=None),
    "one-cycle": partial(lr_scheduler.OneCycleLR, max_lr=0.1),
}


@pytest.mark.filterwarnings("ignore:A `OneCycleLR`")
@pytest.mark.parametrize(
    ("name", "stop"),
    [*((name, ("batch", 2, 0)) for name in SCHEDULERS), ("warm-up", ("batch", 1, 3)), ("one-cycle", None)],
    ids=str,
)
def test_a_schedule_ends_with_a_run_that_goes_on_for_longer(tmp_path, name, stop):
    settings = {"accumulate_grad_batches": 1, "module": partial(Draws, schedule=Schedule(SCHEDULERS[name], "step"))}
    fit(tmp_path / "run", stop, max_epochs=3, **settings)
    _, fitting = fit(tmp_path / "run", resume=True, max_epochs=6, **settings)
    _, fitted = fit(tmp_path / "whole", max_epochs=6, **settings)
    ends = [run.optimizers[0].param_groups[0]["lr"] for run in (fitting, fitted)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)
    assert fitting.global_step == fitted.global_step


def assert_same(one, other) -> None:
    """That two models, optimizers or parts of a checkpoint have the same state in every bit."""
    before, after = (
        dict(leaves(part if isinstance(part, dict | list) else part.state_dict())) for part in (one, other)
    )
    assert before.keys() == after.keys()
    assert [name for name in before if not same(before[name], after[name])] == []


def test_accumulation_that_differs_between_epochs(tmp_path):
    """Of 5, 2 and 3 steps: the schedule of rates counts them, and a run goes on within them."""

    def decaying(stop):
        return Draws(stop, Schedule(partial(WarmupDecay, warmup=0.0), interval="step"))

    def run(name, **options):
        callbacks = [AccumulationSchedule({0: 1, 1: 3, 2: 2})]
        settings = {"module": decaying, "accumulate_grad_batches": 1, "max_epochs": 3}
        return fit(tmp_path / name, callbacks=callbacks, **settings, **options)

    expected, fitted = run("whole")
    assert steps_of_run(fitted) == fitted.global_step == 10
    steps = {(0, 0): 0, (0, 1): 1, (1, 0): 5, (1, 1): 5, (1, 3): 6, (2, 0): 7, (2, 2): 8}
    assert [expected.rates[place] for place in steps] == pytest.approx([0.05 * (10 - n) / 11 for n in steps.values()])
    for number, stop in enumerate([("batch", 1, 2), ("validation", 1, 1), ("batch", 2, 3)]):
        run(f"run {number}", stop=stop)
        model, fitting = run(f"run {number}", resume=True)
        assert_same(expected, model)
        assert_same(fitted.optimizers[0], fitting.optimizers[0])
        assert model.rates.items() <= expected.rates.items()


def test_a_compiled_run(tmp_path):
    """With dropout compiled too."""
    for name, stop, resume in (("whole", None, False), ("run", ("batch", 1, 3), False), ("run", None, True)):
        torch._dynamo.reset()  # the resumed run compiles in a process of its own
        fit(tmp_path / name, stop, resume, callbacks=[Compile("default", backend="aot_eager")])
    torch._dynamo.reset()
    states = [torch.load(tmp_path / name / "last.ckpt", weights_only=True) for name in ("whole", "run")]
    for key in ("state_dict", "optimizer_states"):
        assert_same(states[0][key], states[1][key])


class Shuffled(LightningModule):
    """A module of plain Lightning, with a loader that shuffles."""

    workers = 0

    def __init__(self, stop):
        super().__init__()
        self.layer, self.stop, self.seen = nn.Linear(1, 1), stop, {}

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.arange(8.0)[:, None]), 2, shuffle=True, num_workers=self.workers)

    def training_step(self, batch, batch_idx):
        if self.stop == ("batch", self.current_epoch, batch_idx):
            raise Interrupted
        self.seen[self.current_epoch, batch_idx] = batch[0].flatten().tolist()
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.001)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_order_of_a_plain_loader_goes_on_from_the_end_of_an_epoch(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(Shuffled, "workers", workers)
    settings = {"module": Shuffled, "data": lambda: None, "max_epochs": 3, "options": {}}
    expected, _ = fit(tmp_path / "whole", **settings)
    fit(tmp_path / "run", ("batch", 2, 1), **settings)
    resumed, _ = fit(tmp_path / "run", resume=True, **settings)
    assert resumed.seen
    assert resumed.seen.items() <= expected.seen.items()
    assert len({str(order) for order in expected.seen.values()}) > 4
