"""The batch-size finder: which sizes it tries, and that the run it precedes is that of the size given by hand."""

from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from torch.optim.lr_scheduler import ReduceLROnPlateau

from litlab.callbacks import BatchFinder, LRFinder
from litlab.callbacks.batch_finder import Tried, fastest, search
from litlab.errors import UserError
from litlab.optim import Schedule
from tests.litlab.callbacks.finding import Watched, assert_same, train
from tests.litlab.checkpointing.in_process import Data

FOLDER = Path("lightning_logs/images/version_0")


def device(fits: int, samples: int = 10**9, asked: list | None = None):
    """A device with room for so many samples, and data of so many."""

    def attempt(size: int) -> Tried | None:
        if asked is not None:
            asked.append(size)
        return None if size > fits else Tried(size, speed=float(size), gib=size / 100, is_all=size >= samples)

    return attempt


@pytest.mark.parametrize("fits", [8, 9, 15, 16, 100, 1000, 8191])
def test_the_largest_size_that_fits_is_found_to_a_sixteenth(fits):
    asked: list[int] = []
    tried = search(device(fits, asked=asked), first=8, last=8192, limit=None)
    largest = tried[-1].size
    assert largest <= fits <= largest + max(1, largest // 16)
    assert [one.size for one in tried] == sorted(one.size for one in tried)
    assert len(asked) == len(set(asked)) < 20


@pytest.mark.parametrize(("samples", "last", "expected"), [(100, 8192, 128), (10**9, 100, 100), (10**9, 8, 8)])
def test_it_ends_with_the_data_or_the_largest_size(samples, last, expected):
    assert search(device(10**9, samples), 8, last, None)[-1].size == expected


def test_sizes_below_the_first():
    assert search(device(3), first=8, last=8192, limit=None)[-1].size == 3  # smaller than where it starts
    asked: list[int] = []
    assert search(device(0, asked=asked), first=8, last=8192, limit=None) == []
    assert asked == [8, 4, 2]  # norms over the batch can't train with one sample


def test_a_limit_is_not_passed_to_see_whether_it_holds():
    asked: list[int] = []
    search(device(10**9, asked=asked), first=8, last=8192, limit=5.0)  # 500 samples
    assert 400 < max(asked) <= 500


def test_the_smallest_of_equally_fast_sizes():
    speeds = {16: 50.0, 32: 99.0, 64: 100.0, 128: 100.5}
    assert fastest([Tried(size, speed, 0.0, False) for size, speed in speeds.items()]).size == 32


class Loaded(Data):
    """Counts what happens to it."""

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__(batch_size)
        self.set_up = 0

    def setup(self, stage=None):
        super().setup(stage)
        self.set_up += 1


def test_the_run_is_that_of_the_size_given_by_hand(tmp_path):
    finder = BatchFinder("largest", max_size=5)
    recipe = partial(torch.optim.Adam, lr=0.05)
    found = train(tmp_path, recipe, finder, data=Loaded)
    assert finder.found == 5
    assert_same(found, train(tmp_path, recipe, data=partial(Loaded, 5)))
    finder = BatchFinder("largest")
    found = train(tmp_path, recipe, finder, data=Loaded)
    assert finder.found == 16  # then an epoch of 20 samples is a single batch
    assert_same(found, train(tmp_path, recipe, data=partial(Loaded, 16)))


def test_running_out_of_memory_is_an_outcome_and_other_errors_are_not(tmp_path, monkeypatch):
    original, room = Watched.training_step, 6

    def step(self, batch, batch_idx):
        if len(batch[0]) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return original(self, batch, batch_idx)

    monkeypatch.setattr(Watched, "training_step", step)
    recipe, finder = partial(torch.optim.Adam, lr=0.05), BatchFinder("largest")
    train(tmp_path, recipe, finder)
    assert finder.found == 6
    room = 0
    with pytest.raises(
        UserError, match=r"data.batch_size: not even a batch of 2 fits into the memory of cpu, BatchFinder"
    ):
        train(tmp_path, recipe, finder)
    monkeypatch.setattr(Watched, "training_step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, recipe, finder)


@pytest.mark.matrix
def test_overlays_and_a_resumed_run(fit_images, run):
    flags = ("--data.batch_size=16", "--test_after_fit=false", "--trainer.max_epochs=1")
    largest = "{class_path: BatchFinder, init_args: {take: largest, max_size: 32}}"
    finder = f"--trainer.callbacks=[{{class_path: LRFinder}}, {largest}]"
    done = fit_images("fit", *flags, finder)
    assert done.code == 0, done.err
    assert done.err.index("BatchFinder: ") < done.err.index("LRFinder: ")  # whatever the order in the config
    overlay = FOLDER / "batch_size_largest.yaml"
    assert yaml.safe_load(overlay.read_text()) == {"data": {"init_args": {"batch_size": 32}}}
    assert "1/k of the steps" in overlay.read_text()
    assert (FOLDER / "batch_size_fastest.yaml").is_file()
    done = fit_images("fit", *flags, "--config", overlay, "--config", FOLDER / "lr_finder.yaml")
    assert done.code == 0, done.err
    runs = [FOLDER.with_name(f"version_{number}") / "checkpoints/last.ckpt" for number in range(2)]
    one, other = (torch.load(path, weights_only=True) for path in runs)
    assert one["global_step"] == other["global_step"] == 5  # 160 images
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert_same(one[part], other[part], part)
    done = run("fit", "--resume", "images/version_0", "--trainer.max_epochs=2")
    assert done.code == 0, done.err
    assert "BatchFinder: the run keeps the size that was found when it started, 32" in done.err
    assert torch.load(FOLDER / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 10


def test_data_without_a_batch_size_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"BatchFinder sets data.batch_size, which Data does not have"):
        train(tmp_path, partial(torch.optim.Adam, lr=0.05), BatchFinder(), data=partial(Data, 0))


@pytest.mark.parametrize("finder", [BatchFinder(), LRFinder()], ids=["batch", "lr"])
def test_without_a_training_batch(tmp_path, finder):
    with pytest.raises(UserError, match="there are no training batches to search with"):
        train(tmp_path, partial(torch.optim.Adam, lr=0.05), finder, limit_train_batches=0)


def test_a_rate_that_follows_the_validation(tmp_path):
    """There is none in a search, which goes on for several epochs; in the run that follows there is."""
    schedule = Schedule(ReduceLROnPlateau, "epoch", monitor="val/loss")
    finder = BatchFinder("largest", max_size=5)
    recipe = partial(torch.optim.Adam, lr=0.05)
    found = train(tmp_path, recipe, finder, data=Loaded, schedule=schedule)
    assert_same(found, train(tmp_path, recipe, data=partial(Loaded, 5), schedule=schedule))
