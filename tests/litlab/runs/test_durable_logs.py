"""What is on the disk when a checkpoint is."""

import os
from typing import ClassVar

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.checkpointing import io as checkpoint_files
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.runs.durable_logs import DurableLogs
from tests.litlab.callbacks.tiny import Tiny, TinyData


class Logging(Tiny):
    def on_train_epoch_end(self):
        self.log("train/epoch", float(self.current_epoch))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_logs_are_written_and_synced_before_the_checkpoint(tmp_path, monkeypatch):
    synced: set[str] = set()
    logged_before: list[list[int]] = []  # steps of the epochs' metrics, at each checkpoint
    sync, replace = os.fsync, checkpoint_files.Path.replace

    def note(descriptor):
        synced.add(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")).split(".tfevents")[0])
        sync(descriptor)

    def steps():
        events = EventAccumulator(str(tmp_path / "run"))
        events.Reload()
        return [event.step for event in events.Scalars("train/epoch")]

    def renamed(path, target):
        if str(target).endswith("last.ckpt"):
            assert {"events.out", "config.yaml", "metrics.csv", "run"} <= synced
            synced.clear()
            logged_before.append(steps())
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(checkpoint_files.Path, "replace", renamed)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").touch()
    loggers = [TensorBoardLogger(tmp_path, "", "run"), CSVLogger(tmp_path, "", "csv")]
    Trainer(
        max_epochs=3, accelerator="cpu", logger=loggers, callbacks=[ModelCheckpoint(save_last=True), DurableLogs()],
        plugins=[AtomicCheckpointIO()], enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    ).fit(Logging(), TinyData())  # fmt: skip
    assert logged_before == [[2], [2, 5], [2, 5, 8]]
    assert steps() == [2, 5, 8]  # each once
    rows = (tmp_path / "csv/metrics.csv").read_text().splitlines()
    assert sum("train/epoch" in row for row in rows) == 1


def test_loggers_are_flushed_before_each_checkpoint(tmp_path):
    class Flushed(CSVLogger):
        at: ClassVar[list[int]] = []

        def save(self):
            self.at.append(fitting.global_step)
            super().save()

    keep = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=1, save_top_k=-1)
    fitting = Trainer(
        max_epochs=1, accelerator="cpu", logger=Flushed(tmp_path), callbacks=[keep, DurableLogs()],
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    fitting.fit(Logging(), TinyData())
    assert {1, 2, 3} <= set(Flushed.at)
