"""What all DataModules share: the source, the splits, batches, and a run that is resumed within an epoch."""

from functools import partial

import pandas as pd
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.litlab.data.conftest import Recorder, prepared, refusal
from tests.litlab.data.toys import Numbers, PublicNumbers


class Interrupted(Exception):
    pass


class Stops(Recorder):
    def __init__(self, stop) -> None:
        super().__init__()
        self.stop = stop

    def training_step(self, batch, index):
        if (self.current_epoch, index) == self.stop:
            raise Interrupted
        return super().training_step(batch, index)


def fit(make_trainer, folder, stop=None, resume=None, loader=None, **settings):
    """Returns the training batches by epoch."""
    keep = ModelCheckpoint(folder, save_last=True, every_n_train_steps=1, enable_version_counter=False)
    options = {
        "max_epochs": 3,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": True,
        "callbacks": [keep],
        **settings,
    }
    model, trainer = Stops(stop), make_trainer(**options)
    data = Numbers(batch_size=10, **(loader or {}))
    if stop is None:
        trainer.fit(model, data, ckpt_path=resume, weights_only=True)
    else:
        with pytest.raises(Interrupted):
            trainer.fit(model, data)
    return {
        epoch: [batch.tolist() for batch in some] for (stage, epoch), some in model.seen.items() if stage == "train"
    }


@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:.*resuming from a checkpoint that ended before")
@pytest.mark.parametrize(
    ("batch", "limit", "loader"),
    [
        (0, 8, {}),
        (3, 8, {}),
        (0, 4, {}),
        (3, 8, {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 3}),
    ],
)
def test_a_resumed_run_gets_the_batches_that_are_left(make_trainer, tmp_path, batch, limit, loader):
    run = partial(fit, make_trainer, limit_train_batches=limit)
    whole = run(tmp_path / "whole")
    assert [len(batches) for batches in whole.values()] == [limit] * 3
    before = run(tmp_path, stop=(1, batch), loader=loader)
    after = run(tmp_path, resume=tmp_path / "last.ckpt", loader=loader)
    assert before.get(1, []) + after[1] == whole[1]
    assert len(after[1]) == limit - batch
    assert {**before, **after, 1: whole[1]} == whole


def test_settings_reach_the_loader():
    data = prepared(Numbers(num_workers=2, persistent_workers=True, prefetch_factor=5, batch_size=30, drop_last=False))
    loader = data.train_dataloader()
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor, len(loader)) == (2, True, 5, 3)
    assert not loader.pin_memory  # there is no GPU


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
        ({"dataset": "generated", "path": "x.csv"}, "data.path: data.dataset is generated, which reads no file; add"),
        ({"dataset": "csv"}, "data.path: it is not set; name your own data for data.dataset csv"),
        ({"fallback": "generated"}, "data.dataset: it is not set; use --data.dataset csv --data.path FILE, or"),
    ],
)
def test_sources_that_make_no_sense(settings, message):
    assert refusal(lambda: Numbers().choose_source(settings.get("dataset"), settings.get("path"))).startswith(message)


def test_the_metadata_of_a_checkpoint_counts_and_has_to_fit():
    data = prepared(Numbers())
    assert data.state_dict() == {"class_names": ["rare", "frequent"]}
    message = "data: the checkpoint was trained with class_names ['a', 'b'], here it is ['rare', 'frequent']; use data"
    assert refusal(data.load_state_dict, {"class_names": ["a", "b"]}).startswith(message)
    fresh = Numbers()
    fresh.load_state_dict({"class_names": ["a", "b"]})
    assert refusal(prepared, fresh).startswith(message)
