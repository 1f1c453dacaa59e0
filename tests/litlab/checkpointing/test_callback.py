"""Which checkpoints a run keeps."""

import pytest
from lightning.pytorch import Callback

from litlab.checkpointing import callback as checkpoint
from litlab.checkpointing.callback import RunCheckpoint
from tests.litlab.callbacks import tiny
from tests.litlab.callbacks.tiny import Tiny, TinyData


class Scripted(Tiny):
    """Has the score of its epoch, of four with four steps each."""

    def validation_step(self, batch, batch_idx):
        self.log("val/acc", (0.5, 0.7, 0.6, 0.4)[self.current_epoch])


@pytest.fixture
def fit(tmp_path):
    """Fits four epochs; returns at which steps checkpoints were written."""

    def run(keep: RunCheckpoint, **settings):
        written: list[int] = []

        class Note(Callback):
            def on_save_checkpoint(self, trainer, pl_module, checkpoint):
                written.append(trainer.global_step)

        defaults = {"max_epochs": 4, "enable_checkpointing": True, "num_sanity_val_steps": 0}
        tiny.fit(tmp_path, Scripted(), keep, Note(), data=TinyData(4, 1), **defaults | settings)
        return written

    return run


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        # Never between the batches of a step
        ({"accumulate_grad_batches": 2, "max_epochs": 2}, [1, 2, 3, 4]),
        ({"val_check_interval": 3, "max_epochs": 1}, [1, 2, 4]),  # nor where a validation follows
        ({"max_steps": 6, "val_check_interval": 2}, [1, 3, 4, 5, 6]),  # after its last validation
    ],
    ids=str,
)
def test_after_which_steps_it_is_written(fit, tmp_path, settings, steps):
    every = RunCheckpoint(str(tmp_path), every_minutes=1e-9, save_top_k=0)
    assert fit(every, **settings) == steps


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves by ten minutes with every training step."""
    steps = []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: 600.0 * len(steps))
    monkeypatch.setattr(Scripted, "on_train_batch_start", lambda *step: steps.append(step))


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, [3, 4, 7, 8]),  # half an hour without being told
        ({"every_minutes": 50}, [4, 8]),  # the end of an epoch counts too
        ({"every_minutes": 20, "every_n_train_steps": 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_long_epoch_is_kept_by_time(fit, tmp_path, clock, options, steps):
    keep = RunCheckpoint(str(tmp_path), save_top_k=0, **options)
    assert fit(keep, max_epochs=2) == steps


def test_the_best_one_that_a_run_was_resumed_from_is_replaced_too(fit, tmp_path):
    settings = {"monitor": "val/acc", "save_last": False, "save_top_k": 2}
    fit(RunCheckpoint(str(tmp_path), **settings), max_epochs=1)
    [first] = tmp_path.glob("*.ckpt")
    fit(RunCheckpoint(str(tmp_path), **settings), resume=first)
    kept = {path.name for path in tmp_path.glob("*.ckpt")}
    assert kept == {"epoch=1-step=8.ckpt", "epoch=2-step=12.ckpt"}
