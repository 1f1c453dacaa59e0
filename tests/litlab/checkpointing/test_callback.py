"""Which checkpoints a run keeps."""

import pytest
import torch
from lightning.pytorch import Callback

from litlab.checkpointing import callback as checkpoint
from litlab.checkpointing.callback import RunCheckpoint
from tests.litlab.callbacks import tiny
from tests.litlab.callbacks.tiny import Tiny, TinyData

SCORES = (0.5, 0.7, 0.6, 0.4)  # of the four epochs, four steps each


class Scripted(Tiny):
    def validation_step(self, batch, batch_idx):
        self.log_dict(dict.fromkeys(["val/score", "val/acc"], SCORES[self.current_epoch]))


@pytest.fixture
def fit(tmp_path):
    """Fits four epochs; returns the steps of all checkpoints, and at which steps they were
    written.
    """

    def run(keep: RunCheckpoint, **settings):
        written: list[int] = []

        class Note(Callback):
            def on_save_checkpoint(self, trainer, pl_module, checkpoint):
                written.append(trainer.global_step)

        defaults = {"max_epochs": 4, "enable_checkpointing": True, "num_sanity_val_steps": 0}
        tiny.fit(tmp_path, Scripted(), keep, Note(), data=TinyData(4, 1), **defaults | settings)
        kept = {
            path.name: torch.load(path, weights_only=True)["global_step"]
            for path in tmp_path.glob("*.ckpt")
        }
        return kept, written

    return run


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        # Never between the batches of a step
        ({"accumulate_grad_batches": 2, "max_epochs": 2}, [1, 2, 3, 4]),
        ({"val_check_interval": 3, "max_epochs": 1}, [1, 2, 4]),  # nor where a validation follows
        ({"max_steps": 6, "val_check_interval": 2}, [1, 3, 4, 5, 6]),  # after its last validation
        ({"max_steps": 6, "limit_val_batches": 0}, [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_after_which_steps_it_is_written(fit, tmp_path, settings, steps):
    every = RunCheckpoint(str(tmp_path), every_minutes=1e-9, save_top_k=0)
    _, written = fit(every, **settings)
    assert written == steps


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves by ten minutes with every training step."""
    minutes = [0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: 60.0 * minutes[0])

    def wait(*_):
        minutes[0] += 10

    monkeypatch.setattr(Scripted, "on_train_batch_start", wait)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, [3, 4, 7, 8]),  # half an hour without being told
        ({"every_minutes": 50}, [4, 8]),  # the end of an epoch counts too
        ({"every_minutes": 20, "every_n_train_steps": 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_long_epoch_is_kept_by_time(fit, tmp_path, clock, options, steps):
    _, written = fit(RunCheckpoint(str(tmp_path), save_top_k=0, **options), max_epochs=2)
    assert written == steps


def test_metrics_in_a_file_name_make_no_folders(fit, tmp_path):
    name = "{epoch:02d}-{val/score:.2f}"
    kept, _ = fit(RunCheckpoint(str(tmp_path), name, monitor="val/score", mode="max"))
    assert kept == {"epoch=01-val_score=0.70.ckpt": 8, "last.ckpt": 16}


def test_the_best_one_that_a_run_was_resumed_from_is_replaced_too(fit, tmp_path):
    settings = {"monitor": "val/acc", "save_last": False, "save_top_k": 2}
    fit(RunCheckpoint(str(tmp_path), **settings), max_epochs=1)
    [first] = tmp_path.glob("*.ckpt")
    kept, _ = fit(RunCheckpoint(str(tmp_path), **settings), resume=first)
    assert kept == {"epoch=1-step=8.ckpt": 8, "epoch=2-step=12.ckpt": 12}
