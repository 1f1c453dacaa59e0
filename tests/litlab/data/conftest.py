"""What tests of data share."""

import logging
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from litlab.errors import UserError


def a_rank(rank: int, ranks: int = 2) -> SimpleNamespace:
    """What a data module asks of the trainer of one of several processes."""
    strategy = SimpleNamespace(
        distributed_sampler_kwargs={"num_replicas": ranks, "rank": rank},
        root_device=torch.device("cpu"), broadcast=lambda value: value,
    )  # fmt: skip
    loop = SimpleNamespace(is_resuming=False)
    return SimpleNamespace(world_size=ranks, strategy=strategy, fit_loop=loop)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """Files and caches of a test are in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def said(caplog, monkeypatch) -> list[str]:
    """What the user is told."""
    lines, logger = [], logging.getLogger("lightning.pytorch")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, handler])
    caplog.set_level(logging.INFO, logger.name)
    return lines


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
    data.write_predictions([*outputs], "out.csv")
    return pd.read_csv("out.csv", dtype=str)
