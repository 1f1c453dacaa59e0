"""The private names of Lightning and torch that litlab relies on are those of the installed versions.

What they do is tested where they are used: signals, resumed runs, logs. This says at once which one is gone.
"""

import inspect

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from litlab.checkpointing.callback import RunCheckpoint


@pytest.fixture(scope="module")
def trainer(tmp_path_factory) -> Trainer:
    return Trainer(
        accelerator="cpu", logger=CSVLogger(tmp_path_factory.mktemp("logs")), enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "fit_loop._restarting",
        "fit_loop._resuming_from_checkpoint",
        "fit_loop.epoch_loop.val_loop._restarting",
        "fit_loop._can_stop_early",
        "fit_loop.on_advance_start",
        "fit_loop.on_run_end",
        "fit_loop._should_accumulate",
        "fit_loop._data_fetcher",
        "fit_loop.epoch_loop._num_ready_batches_reached",
        "fit_loop.epoch_loop._should_check_val_fx",
        "fit_loop.epoch_loop._broadcast_sigterm_tensor",
        "fit_loop.epoch_loop._batches_that_stepped",
        "_signal_connector.register_signal_handlers",
        "_accelerator_connector.cluster_environment",
    ],
)
def test_a_trainer_has_them(trainer, path):
    owner = trainer
    for name in path.split("."):
        assert hasattr(owner, name), (
            f"{type(owner).__name__} has no {name} any more: see litlab/checkpointing/internals.py"
        )
        owner = getattr(owner, name)


def test_other_classes_and_modules_have_them():
    assert callable(torch.mps._get_default_mps_generator)


@pytest.mark.parametrize("name", ["_save_last_checkpoint", "_should_remove_checkpoint"])
def test_methods_that_are_overridden_have_their_parameters(name):
    """A renamed one would be overridden without effect."""
    theirs, ours = (inspect.signature(getattr(kind, name)) for kind in (ModelCheckpoint, RunCheckpoint))
    assert list(theirs.parameters) == list(ours.parameters)
