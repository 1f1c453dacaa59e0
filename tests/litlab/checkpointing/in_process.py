"""A tiny fit in this process that draws random numbers, and stops before a chosen batch; not a
test itself.
"""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch import seed_everything
from torch import nn
from torch.utils.data import TensorDataset

from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.data.module import ExperimentData
from litlab.data.serving import Metadata
from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import make_trainer

BATCHES = 5  # of an epoch; with an accumulation of two the last one is a step of its own


class Interrupted(Exception):
    pass


class Data(ExperimentData):
    def __init__(self) -> None:
        super().__init__(batch_size=4)
        inputs = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
        self.dataset = TensorDataset(inputs, torch.arange(20) % 3)

    def open(self, stage):
        self.sizes = {"train": 20, "val": 20}
        return Metadata()

    def samples(self, split):
        return self.dataset


class Draws(Classifier):
    """Draws before each step, and stops before one."""

    def __init__(self, stop=None, schedule=None) -> None:
        network = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)
        )
        adam = partial(torch.optim.Adam, lr=0.05)
        super().__init__(network, num_classes=3, optimizer=adam, schedule=schedule)
        self.stop, self.drawn, self.rates = stop, {}, {}

    def on_train_batch_start(self, batch, batch_idx):
        place = self.current_epoch, batch_idx
        if self.stop == place:
            raise Interrupted
        self.drawn[place] = torch.rand(()).item()
        self.rates[place] = self.optimizers().param_groups[0]["lr"]


EACH_STEP = {"every_n_train_steps": 1}


def fit(
    folder: Path,
    stop=None,
    resume=False,
    options=EACH_STEP,
    module=Draws,
    data=Data,
    callbacks=(),
    **settings,
):
    """A fit, which ends by itself or with `Interrupted`; the model and its Trainer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PL_GLOBAL_SEED", "")  # seed_everything sets it for all tests that follow
        seed_everything(5, verbose=False)
        model, last = module(stop), folder / "last.ckpt"
        keep = RunCheckpoint(str(folder), **options)
        defaults = {"max_epochs": 2, "accumulate_grad_batches": 2, "enable_checkpointing": True}
        callbacks = [ExactResume(), keep, *callbacks]
        fitting = make_trainer(folder, callbacks=callbacks, **defaults | settings)
        with nullcontext() if stop is None else pytest.raises(Interrupted):
            fitting.fit(model, data(), ckpt_path=last if resume else None, weights_only=True)
    return model, fitting
