"""The length of a run of 7 training batches by its settings, against what Lightning then does."""

import math

import pytest
from lightning.pytorch import Callback, Trainer

from litlab.commands.check.cost import run_length
from tests.litlab.commands.check.conftest import Data, model

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Count(Callback):
    validations = 0

    def on_validation_start(self, trainer, pl_module):
        self.validations += 1


def build_trainer(**settings) -> Trainer:
    quiet = {
        "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "num_sanity_val_steps": 0,
    }  # fmt: skip
    return Trainer(**{**quiet, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"max_epochs": 3, "accumulate_grad_batches": 2},
        {"max_epochs": 2, "max_steps": 10, "val_check_interval": 0.3},
        {"max_epochs": 5, "check_val_every_n_epoch": 2, "val_check_interval": 0.5},
        {"max_epochs": 5, "check_val_every_n_epoch": None, "val_check_interval": 4, "accumulate_grad_batches": 2},
        {"max_epochs": 3, "limit_val_batches": 0},
    ],
    ids=str,
)
def test_it_is_as_long_as_it_turns_out_to_be(settings):
    count = Count()
    run = build_trainer(callbacks=[count], **settings)
    expected = run_length(run, 7, validated=run.limit_val_batches > 0)
    run.fit(model(), datamodule=Data(train=35, val=10))
    per_epoch = math.ceil(7 / run.accumulate_grad_batches)
    assert expected == (per_epoch, run.global_step, count.validations)


@pytest.mark.parametrize(
    ("settings", "batches", "validated", "length"),
    [
        ({"max_epochs": 3, "devices": 2, "strategy": "ddp"}, 7, False, (3, 9, 0)),  # processes share an epoch,
        ({"max_epochs": 3, "devices": 2, "strategy": "ddp", "limit_train_batches": 2}, 2, False, (2, 6, 0)),  # no limit
        ({"max_epochs": -1}, 7, True, (7, math.inf, math.inf)),
        ({"max_steps": 9}, math.inf, False, (math.inf, 9, 0)),
        ({}, 7, False, (7, 7000, 0)),
        ({"max_epochs": 3, "val_check_interval": "00:00:00:30"}, 7, True, (7, 21, 0)),
    ],
    ids=str,
)
def test_what_is_not_tried(settings, batches, validated, length):
    assert run_length(build_trainer(**settings), batches, validated) == length
