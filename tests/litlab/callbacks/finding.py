"""Runs after a search, and those whose rate or batch size is given by hand; not a test itself."""

import random
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Trainer, seed_everything
from torch import nn

from litlab.tasks import Classifier
from tests.litlab.checkpointing.in_process import Data, Draws


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


def train(folder: Path, recipe, *callbacks, data=Data, **settings):
    """A fit whose random numbers are those of one stream: nothing is seeded on the way."""
    seed_everything(3, verbose=False)
    model = Watched(recipe, settings.pop("schedule", None), settings.pop("param_groups", None))
    data = data()
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
