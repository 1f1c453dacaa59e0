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


def make_data(unit=1.0, has_val=True) -> LightningDataModule:
    """300 samples of 6 numbers in 4 classes, in batches of 5, to train and to validate on."""
    samples = TensorDataset(unit * torch.randn(300, 6), torch.arange(300) % 4)
    data = LightningDataModule()
    data.description = "numbers"
    data.train_dataloader = lambda: DataLoader(samples, batch_size=5)
    data.val_dataloader = lambda: data.train_dataloader() if has_val else []
    return data


def make_model(change=None, beside=False, lr=0.01) -> Classifier:
    """Two layers; `change` makes something else of their inputs and outputs.

    Args:
        change: A function of the network, inputs and outputs.
        beside: Whether there is a third layer, which is not used.
        lr: Its learning rate.
    """
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    if beside:
        network[0].beside = nn.Linear(6, 4)
    if change is not None:
        network.register_forward_hook(lambda _, inputs, out: change(network, *inputs, out))
    return Classifier(network, num_classes=4, optimizer=partial(torch.optim.SGD, lr=lr))


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """Checks a run in an empty folder; returns the words it printed. The run keeps checkpoints and
    curves.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def check_it(module, data=None, callbacks=(), **settings):
        settings |= {"logger": TensorBoardLogger(tmp_path), "enable_checkpointing": True}
        callbacks = [ModelCheckpoint(), *callbacks]
        run = make_trainer(tmp_path, callbacks=callbacks, max_epochs=3, **settings)
        check(run, module, data or make_data())
        assert not list(tmp_path.iterdir())
        return " ".join(capsys.readouterr().out.split())

    return check_it
