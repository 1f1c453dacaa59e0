"""Memory and speed of each epoch, and snapshots of what takes the memory."""

from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock, call

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger

from litlab.callbacks import VRAM, MemorySnapshot
from tests.litlab.callbacks.tiny import Tiny, fit


def test_logs_each_epoch_without_validation(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    class Timed(Tiny):
        def on_train_batch_start(self, *_):
            now[0] += 1.0

        def on_validation_batch_start(self, *_):
            now[0] += 100.0

    vram = VRAM()
    metrics = fit(tmp_path, Timed(), vram, max_epochs=2).callback_metrics
    assert metrics["time/epoch_seconds"] == 3.0
    assert vram.samples_per_second == pytest.approx(10 / 3)
    assert 0.05 < vram.peak_gib < 64
    for name, value in (("time/samples_per_second", 10 / 3), ("memory/host_gib", vram.peak_gib)):
        assert metrics[name].item() == pytest.approx(value)


@pytest.mark.parametrize(
    ("error", "files"),
    [
        (None, ["memory-0.pickle"]),
        (torch.OutOfMemoryError, ["memory-0-oom.pickle"]),
        (ZeroDivisionError, []),
    ],
)
def test_snapshots(tmp_path, monkeypatch, error, files):
    """What is asked of CUDA's allocator, where there is none."""
    record = Mock()
    monkeypatch.setattr("torch.cuda.memory._record_memory_history", record)
    monkeypatch.setattr("torch.cuda.memory._dump_snapshot", lambda path: Path(path).touch())
    monkeypatch.setattr("torch.cuda.memory_summary", lambda: "a table")

    class Snapshot(MemorySnapshot):
        def on_train_start(self, trainer, pl_module):
            with monkeypatch.context() as patch:
                patch.setattr(trainer.strategy, "_root_device", torch.device("cuda"))
                super().on_train_start(trainer, pl_module)

    fail = LambdaCallback(on_train_batch_end=Mock(side_effect=error))
    with suppress(ZeroDivisionError, torch.OutOfMemoryError):
        fit(tmp_path, Tiny(), Snapshot(2), fail, logger=CSVLogger(tmp_path), limit_val_batches=0)
    assert record.mock_calls == [call(), call(enabled=None)]
    assert [path.name for path in tmp_path.rglob("memory-*.pickle")] == files


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu(tmp_path):
    logger = CSVLogger(tmp_path, "", "run")
    trainer = fit(
        tmp_path, Tiny(), MemorySnapshot(2), VRAM(), logger=logger, accelerator="gpu", devices=1
    )
    assert (tmp_path / "run/memory-0.pickle").stat().st_size > 1000
    assert not any(torch.cuda.memory._snapshot()["device_traces"])
    assert (
        0
        < trainer.callback_metrics["vram/allocated_gib"]
        < trainer.callback_metrics["vram/reserved_gib"]
    )
