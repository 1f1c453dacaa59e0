"""What all DataModules share: the source, batches, settings of the loader, and a run that goes on within an epoch."""

from functools import partial

import pandas as pd
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.testing import assert_close

from litlab.data import Augment, ImageData, TextData
from tests.litlab.data.conftest import Recorder, prepared, refusal
from tests.litlab.data.toys import Numbers, PublicNumbers

assert_same = partial(assert_close, rtol=0, atol=0)


@pytest.fixture(params=["images", "texts"])
def make(request, tmp_path):
    """Makes the data, anew at each call."""
    path = str(request.getfixturevalue(request.param))
    common = {"seed": 3, "cache_dir": str(tmp_path)}
    return {
        "images": partial(ImageData, path=path, batch_size=30, augment=Augment(crop=2, flip="random"), **common),
        "texts": partial(TextData, path=path, batch_size=16, max_tokens=8, long_texts="crop", **common),
    }[request.param]


def test_batches_for_loops_of_ones_own_are_those_of_a_trainer(make, make_trainer):
    """Whoever prepares them."""
    model, data = Recorder(), make(num_workers=1, persistent_workers=True)
    trainer = make_trainer(max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    alone = make()  # which nothing was prepared for
    together = list(zip(alone.batches("train", 0), alone.batches("train", 1), strict=True))  # each has its own epoch
    for epoch in (0, 1):
        assert_same([batches[epoch] for batches in together], model.seen["train", epoch])
    assert_same(list(alone.batches("val", epoch=1)), model.seen["val", 0])
    assert_same(list(alone.batches("test")), model.seen["test", 2])
    with pytest.raises(AssertionError):
        assert_same(model.seen["train", 0], model.seen["train", 1])
    assert next(alone.batches("val", device="meta"))[1].is_meta


class Stops(Recorder):
    """Is interrupted in the second epoch, before a batch."""

    def __init__(self, batch) -> None:
        super().__init__()
        self.batch = batch

    def training_step(self, batch, index):
        if (self.current_epoch, index) == (1, self.batch):
            raise InterruptedError
        return super().training_step(batch, index)


@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:.*resuming from a checkpoint that ended before")
@pytest.mark.parametrize(
    ("batch", "limit", "loader"), [(0, 8, {}), (3, 4, {}), (3, 8, {"num_workers": 1, "persistent_workers": True})]
)
def test_a_resumed_run_gets_the_batches_that_are_left(make_trainer, tmp_path, batch, limit, loader):
    def fit(model, **resume):
        keep = ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1, enable_version_counter=False)
        options = {"max_epochs": 3, "num_sanity_val_steps": 0, "enable_checkpointing": True, "callbacks": [keep]}
        trainer = make_trainer(limit_train_batches=limit, **options)
        trainer.fit(model, Numbers(batch_size=10, **loader), **resume, weights_only=True)

    whole, before, after = Recorder(), Stops(batch), Recorder()
    fit(whole)
    with pytest.raises(InterruptedError):
        fit(before)
    fit(after, ckpt_path=tmp_path / "last.ckpt")
    for epoch in range(3):
        parts = [*before.seen.get(("train", epoch), []), *after.seen.get(("train", epoch), [])]
        assert_same(parts, whole.seen["train", epoch])
        assert len(parts) == limit


def test_settings_reach_the_loader():
    data = prepared(Numbers(num_workers=2, persistent_workers=True, prefetch_factor=5, batch_size=30, drop_last=False))
    loader = data.train_dataloader()
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor, len(loader)) == (2, True, 5, 3)


class Public(Numbers):
    public = PublicNumbers()


@pytest.mark.parametrize(
    ("kind", "settings", "dataset"),
    [
        (Numbers, {"path": "{root}"}, "folder"),
        (Numbers, {"path": "{root}/a.parquet"}, "csv"),
        (Numbers, {"path": pd.DataFrame({"a": [1]})}, "csv"),
        (Numbers, {"dataset": "generated"}, "generated"),
        (Public, {}, None),
        (Public, {"path": "{root}/elsewhere"}, None),
        (Public, {"path": "{root}"}, "folder"),
    ],
)
def test_a_path_tells_what_is_read(tmp_path, kind, settings, dataset):
    (tmp_path / "train").mkdir()
    if isinstance(settings.get("path"), str):
        settings = {**settings, "path": settings["path"].format(root=tmp_path)}
    data = kind(**settings)
    assert (data.dataset, data.generated) == (dataset, dataset == "generated")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("generated", "x.csv"), "data.path: data.dataset is generated, which reads no file; add"),
        (("csv", None), "data.path: it is not set; name your own data for data.dataset csv"),
        ((None, None), "data.dataset: it is not set; use --data.dataset csv --data.path FILE, or"),
    ],
)
def test_sources_that_make_no_sense(settings, message):
    assert refusal(Numbers().choose_source, *settings).startswith(message)


def test_the_metadata_of_a_checkpoint_counts_and_has_to_fit():
    data = prepared(Numbers())
    assert data.state_dict() == {"class_names": ["rare", "frequent"]}
    message = "data: the checkpoint was trained with class_names ['a', 'b'], here it is ['rare', 'frequent']; use data"
    assert refusal(data.load_state_dict, {"class_names": ["a", "b"]}).startswith(message)
    fresh = Numbers()
    fresh.load_state_dict({"class_names": ["a", "b"]})
    assert refusal(prepared, fresh).startswith(message)
