"""A small model and its data, and the check of a run with them."""

from functools import partial

import pytest
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.commands.check.check import check
from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import make_trainer


class Data(LightningDataModule):
    """Samples of 6 numbers in 4 classes, in batches of 5: 60 batches to train on and 10 to validate
    on.
    """

    description = "numbers"
    num_classes = 4

    def __init__(self, train: int = 300, val: int = 50, nan: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(300, 6, generator=generator)
        if nan:
            self.inputs[3, 2] = torch.nan
        self.labels = torch.arange(300) % 4
        self.train, self.val = train, val

    def _loader(self, samples: int) -> DataLoader:
        return DataLoader(TensorDataset(self.inputs[:samples], self.labels[:samples]), batch_size=5)

    def train_dataloader(self):
        return self._loader(self.train)

    def val_dataloader(self):
        return self._loader(self.val) if self.val else []


class Network(nn.Module):
    """Two layers. `dead` has a layer beside them that is not used, `zero` one that is multiplied by
    0.
    """

    def __init__(self, kind: str = "", scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)
        with torch.no_grad():
            self.last.weight *= scale
        if kind in ("dead", "zero"):
            self.beside = nn.Linear(6, 4)

    def forward(self, inputs):
        logits = self.last(self.first(inputs).tanh())
        if self.kind == "zero":
            logits = logits + 0 * self.beside(inputs)
        if self.kind == "nan":
            logits = logits / (logits - logits)
        if self.kind == "root":
            logits = logits + (inputs - inputs + 0 * logits.sum()).abs().sqrt().sum()
        return logits


def model(kind: str = "", scale: float = 1.0, classes: int = 4, lr: float = 0.01) -> Classifier:
    return Classifier(
        Network(kind, scale), num_classes=classes, optimizer=partial(torch.optim.SGD, lr=lr)
    )


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """Checks a run in an empty folder; returns the words it printed. The run keeps checkpoints and
    curves.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def check_it(module: Classifier, data=None, callbacks=(), **settings) -> str:
        settings |= {"logger": TensorBoardLogger(tmp_path), "enable_checkpointing": True}
        callbacks = [ModelCheckpoint(), *callbacks]
        run = make_trainer(tmp_path, callbacks=callbacks, max_epochs=3, **settings)
        check(run, module, data or Data())
        assert not list(tmp_path.iterdir())
        return " ".join(capsys.readouterr().out.split())

    return check_it
