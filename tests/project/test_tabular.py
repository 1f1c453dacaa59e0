"""The table experiment: its contract."""

import math

from litlab.testing import ModuleContract
from tests.conftest import CONFIGS


class TestClasses(ModuleContract):
    config = CONFIGS / "tabular.yaml"
    settings = (
        *"""
            --data.batch_size=40 --trainer.callbacks=[] --ema=null --model.network.dropout=0
            --model.network.hidden_sizes=[128,128] --model.optimizer.lr=0.01
        """.split(),
    )  # fmt: skip
    loss_at_start = math.log(2)
    overfit_steps = 30
