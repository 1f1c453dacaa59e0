"""torchao's AdamW8bit, an optional package, through fits, runs and checkpoints."""

from functools import partial

import pytest
import torch
from torch import nn

from litlab.checkpointing.io import AtomicCheckpointIO
from tests.litlab.checkpointing.in_process import Draws, fit
from tests.litlab.checkpointing.resuming import differences, leaves

AdamW8bit = pytest.importorskip("torchao.optim").AdamW8bit

pytestmark = pytest.mark.filterwarnings("ignore:Checkpoint directory")


@pytest.fixture(autouse=True)
def _uncompiled():
    """The numbers are the same to the last bits or so; the compiler takes seconds for each shape."""
    with torch.compiler.set_stance("force_eager"):
        yield


class Large(Draws):
    """With weights that are large enough for 8 bits."""

    def __init__(self, stop=None) -> None:
        super().__init__(stop)
        self.network = nn.Sequential(nn.Linear(6, 1024), nn.BatchNorm1d(1024), nn.Dropout(0.4), nn.Linear(1024, 3))
        self.optimizer = partial(AdamW8bit, lr=0.01)


def test_resumes_exactly_in_the_middle_of_an_epoch(tmp_path):
    settings = {"module": Large, "plugins": [AtomicCheckpointIO()]}
    whole = fit(tmp_path / "whole", **settings)
    fit(tmp_path, stop=("batch", 1, 3), **settings)
    resumed = fit(tmp_path, resume=True, **settings)
    before, after = (
        dict(leaves([model.state_dict(), trainer.optimizers[0].state_dict()])) for model, trainer in (whole, resumed)
    )
    assert sum(name.endswith("/codes") for name in before) == 2  # both moments of the first layer's weights
    assert differences(before, after) == []
