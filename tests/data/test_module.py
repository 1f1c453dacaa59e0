"""A run that is resumed in the middle of an epoch gets the batches that are left."""

from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from project.data import TextData
from project.models import TransformerClassifier
from project.optim import Schedule, WarmupDecay


class Interrupted(Exception):
    pass


def _fit(folder, texts, stop=None, resume=None, scheduled=True):
    """Returns the first token ids of each training batch, by epoch and batch."""
    data = TextData("csv", path=str(texts), batch_size=16, max_tokens=40, cache_dir=str(folder / "cache"))
    schedule = Schedule(WarmupDecay, interval="step") if scheduled else None
    model = TransformerClassifier(
        8, heads=2, vocab_size=data.vocab_size, max_tokens=40, num_classes=4, schedule=schedule,
        optimizer=partial(torch.optim.SGD, lr=0.1),
    )  # fmt: skip
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
        use_distributed_sampler=False, callbacks=[checkpoint], num_sanity_val_steps=0,
    )  # fmt: skip
    if stop is None:
        trainer.fit(model, data, ckpt_path=resume, weights_only=True)
    else:
        with pytest.raises(Interrupted):
            trainer.fit(model, data)
    return seen


@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:.*resuming from a checkpoint that ended before")
@pytest.mark.parametrize("scheduled", [True, False])
@pytest.mark.parametrize("stop", [(1, 0), (1, 3), (1, 7), (2, 0)])
def test_resumed_batches(tmp_path, texts, stop, scheduled):
    whole = _fit(tmp_path / "whole", texts, scheduled=scheduled)
    assert max(whole) == (2, 7)
    before = _fit(tmp_path / "parts", texts, stop, scheduled=scheduled)
    after = _fit(tmp_path / "parts", texts, resume=tmp_path / "parts/last.ckpt", scheduled=scheduled)
    assert min(after) == stop
    assert {**before, **after} == whole
