"""A module that keeps what it is given, and a trainer that leaves nothing behind."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from litlab.errors import UserError
from tests.litlab.callbacks.tiny import make_trainer


class Recorder(LightningModule):
    """Trains one weight and keeps all that it is given, in the order of (stage, epoch)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: dict[tuple[str, int], list] = {}

    def _keep(self, stage: str, batch):
        self.seen.setdefault((stage, self.current_epoch), []).append(batch)

    def training_step(self, batch, index):
        self._keep("train", batch)
        return self.weight * 1.0

    def validation_step(self, batch, index):
        self._keep("sanity" if self.trainer.sanity_checking else "val", batch)

    def test_step(self, batch, index):
        self._keep("test", batch)

    def predict_step(self, batch, index):
        self._keep("predict", batch)
        return torch.full((len(batch), 2), 0.5)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def inputs(self, stage: str, epoch: int = 0) -> list:
        """Those of each batch, with or without a target."""
        batches = self.seen[stage, epoch]
        return [batch[0] if isinstance(batch, tuple | list) else batch for batch in batches]


@pytest.fixture(name="make_trainer")
def make_trainer_here(tmp_path: Path) -> Callable[..., Trainer]:
    return partial(make_trainer, tmp_path, use_distributed_sampler=False)


def a_rank(rank: int, ranks: int = 2) -> SimpleNamespace:
    """What a data module asks of the trainer of one of several processes."""
    loop = SimpleNamespace(is_resuming=False)
    strategy = SimpleNamespace(
        distributed_sampler_kwargs={"num_replicas": ranks, "rank": rank},
        root_device=torch.device("cpu"), broadcast=lambda value: value,
        reduce_boolean_decision=lambda decision, all: decision,
    )  # fmt: skip
    return SimpleNamespace(
        global_rank=rank, local_rank=rank, world_size=ranks, num_devices=1, strategy=strategy,
        fit_loop=loop,
    )  # fmt: skip


@pytest.fixture
def said():
    """What the user is told."""
    lines, logger = [], logging.getLogger("lightning.pytorch")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def refusal(action, *arguments, **options) -> str:
    """The one line that says what is wrong."""
    with pytest.raises(UserError) as error:
        action(*arguments, **options)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def prepared(data, stage=None):
    data.prepare_data()
    data.setup(stage)
    return data


def restore(data, **settings):
    """What the checkpoint of some data restores where its file is gone, whatever is set there."""
    later = type(data)(path="gone.csv", **settings)
    later.load_state_dict(prepared(data).state_dict())
    return later


def write_and_read(data, *outputs) -> pd.DataFrame:
    """The table of predictions, as texts."""
    with TemporaryDirectory() as folder:
        data.write_predictions([*outputs], f"{folder}/out.csv")
        return pd.read_csv(f"{folder}/out.csv", dtype=str)
