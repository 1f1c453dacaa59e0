"""The length of a run by its settings: per epoch, and all steps and validations."""

import math

import pytest
from lightning.pytorch import Trainer

from litlab.commands.check.check import run_length

INF = math.inf


@pytest.mark.parametrize(
    ("settings", "batches", "length"),
    [
        # As Lightning 2.6 then does
        ({"max_epochs": 3, "accumulate_grad_batches": 2}, 7, (4, 12, 3)),
        ({"max_epochs": 2, "max_steps": 10, "val_check_interval": 0.3}, 7, (7, 10, 4)),
        ({"max_epochs": 5, "check_val_every_n_epoch": None, "val_check_interval": 4}, 7, (7, 35, 8)),
        # Processes share an epoch, no limit
        ({"max_epochs": 3, "devices": 2, "strategy": "ddp", "limit_train_batches": 2}, 2, (2, 6, 3)),
        ({"max_steps": 9}, INF, (INF, 9, 0)),
        ({"max_epochs": 3, "val_check_interval": "00:00:00:30"}, 7, (7, 21, 0)),
    ],
    ids=str,
)
def test_length(settings, batches, length):
    run = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)
    *steps, validations = run_length(run, batches, validated=True)
    assert tuple(steps) == length[:2]
    assert 0 <= validations - length[2] < 1
    assert run_length(run, batches, validated=False) == (*length[:2], 0)
