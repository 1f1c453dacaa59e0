"""A run that is resumed in the middle of an epoch gets the batches that are left."""

import os
from functools import cache, partial

import pytest
import torch
from auks.text import SmallTextClassifier
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from litlab.data.loading import LoaderSettings

from litlab.data import ImageData, SeriesData, TextData
from litlab.data.sampler import EpochBatches
from litlab.errors import UserError
from litlab.optim import Schedule, WarmupDecay


class Interrupted(Exception):
    pass


def _fit(folder, texts, stop=None, resume=None, scheduled=True, loader=None, **settings):
    """Returns the first token ids of each training batch, by epoch and batch."""
    data = TextData(
        "csv", path=str(texts), batch_size=16, max_tokens=20, long_texts="crop", cache_dir=str(texts.parent / "cache"),
        **(loader or {}),
    )  # fmt: skip
    schedule = Schedule(WarmupDecay, interval="step") if scheduled else None
    optimizer = partial(torch.optim.SGD, lr=0.1)
    model = SmallTextClassifier(vocab_size=data.vocab_size, num_classes=4, schedule=schedule, optimizer=optimizer)
    seen, step = {}, model.training_step

    def watched(batch, batch_idx):
        if (model.current_epoch, batch_idx) == stop:
            raise Interrupted
        seen[model.current_epoch, batch_idx] = batch[0]["ids"].tolist()
        return step(batch, batch_idx)

    model.training_step = watched
    checkpoint = ModelCheckpoint(folder, save_last=True, every_n_train_steps=1, enable_version_counter=False)
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False, callbacks=[checkpoint], num_sanity_val_steps=0, **settings,
    )  # fmt: skip
    if stop is None:
        trainer.fit(model, data, ckpt_path=resume, weights_only=True)
    else:
        with pytest.raises(Interrupted):
            trainer.fit(model, data)
    return seen


@pytest.fixture(scope="module")
def whole(texts, tmp_path_factory):
    """The batches of a run that never stopped."""
    return cache(lambda **settings: _fit(tmp_path_factory.mktemp("whole"), texts, **settings))


@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:.*resuming from a checkpoint that ended before")
@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize("stop", [(1, 0), (1, 3), (1, 7), (2, 0)])
def test_resumed_batches(tmp_path, texts, whole, stop, scheduled):
    expected = whole(scheduled=scheduled)
    assert max(expected) == (2, 7)
    before = _fit(tmp_path, texts, stop, scheduled=scheduled)
    after = _fit(tmp_path, texts, resume=tmp_path / "last.ckpt", scheduled=scheduled)
    assert min(after) == stop
    assert {**before, **after} == expected


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.parametrize(
    ("stop", "loader"),
    [
        ((1, 3), {"num_workers": 2}),
        ((2, 0), {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3}),
    ],
)
def test_resumed_batches_of_workers(tmp_path, texts, whole, stop, loader):
    """Their copies of the texts are cut where those of the training process are, and prefetching loses no batch."""
    settings = {"loader": loader, "limit_val_batches": 0}  # whose workers would take time to start, too
    before = _fit(tmp_path, texts, stop, **settings)
    after = _fit(tmp_path, texts, resume=tmp_path / "last.ckpt", **settings)
    assert {**before, **after} == whole(scheduled=True)


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_a_limited_epoch_is_complete(tmp_path, texts, whole):
    before = _fit(tmp_path, texts, (1, 0), limit_train_batches=4)
    after = _fit(tmp_path, texts, resume=tmp_path / "last.ckpt", limit_train_batches=4)
    assert max(before) == (0, 3)
    assert {**before, **after} == whole(limit_train_batches=4)


class OnGPU:
    device = torch.device("cuda")


def test_workers_cannot_read_from_an_accelerator():
    with pytest.raises(UserError, match=r"^data\.num_workers: 2 worker processes can't read data that lies on the acc"):
        LoaderSettings(num_workers=2).loader(OnGPU(), EpochBatches(4, 2, train=True), None, seed=0)


@pytest.mark.parametrize("kind", [ImageData, TextData, SeriesData])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prefetch_factor": 2}, r"data\.prefetch_factor: there are no workers; set data\.num_workers"),
        ({"persistent_workers": True}, r"data\.persistent_workers: there are no workers"),
    ],
)
def test_settings_of_loaders_that_make_no_sense(kind, settings, message):
    with pytest.raises(UserError, match=message):
        kind("generated", **settings)


def test_settings_reach_the_loader():
    data = TextData("generated", num_workers=2, persistent_workers=True, prefetch_factor=5)
    loader = data.loading.loader([], EpochBatches(4, 2, train=True), None, seed=0)
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (2, True, 5)
    assert not loader.pin_memory  # there is no GPU
    with pytest.raises(UserError, match=r"data\.pin_memory: the batches are used by the CPU"):
        LoaderSettings(pin_memory=True).loader([], EpochBatches(4, 2, train=True), None, seed=0)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("gone"), lambda path: path.symlink_to(path)])
@pytest.mark.parametrize("data", [ImageData("generated"), TextData("generated"), SeriesData("generated")])
def test_a_pipe_is_no_input_to_predict(tmp_path, data, make):
    make(tmp_path / "new.csv")
    data.predict_input, data.restored = str(tmp_path / "new.csv"), True
    with pytest.raises(UserError, match=r"^--input .*new\.csv: a broken link, a pipe or a device; name a file$"):
        data.predict_dataloader()
