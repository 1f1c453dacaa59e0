import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from litlab.callbacks import VRAM
from litlab.callbacks import vram as module
from litlab.callbacks.vram import count_samples
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ((torch.zeros(5, 3), torch.zeros(5)), 5),
        (torch.zeros(6), 6),
        (({"ids": torch.zeros(7, 2)}, torch.zeros(7)), 7),
        ([(torch.zeros(8, 2), torch.zeros(1)), torch.zeros(8)], 8),
        ({}, 0),
        ("text", 0),
        (torch.tensor(1.0), 0),
    ],
)
def test_count_samples(batch, samples):
    assert count_samples(batch) == samples


class Clock:
    """A clock that stands still but for what the model adds."""

    now = 0.0

    def perf_counter(self):
        return self.now


def test_logs_each_epoch_without_validation(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)

    class Timed(Tiny):
        def training_step(self, batch, batch_idx):
            clock.now += 1.0
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            clock.now += 100.0
            return super().validation_step(batch, batch_idx)

    vram = VRAM()
    trainer = make_trainer(tmp_path, max_epochs=2, callbacks=[vram], val_check_interval=1)
    trainer.fit(Timed(), TinyData(samples=10, batch_size=4))
    assert vram.epoch_seconds == [3.0, 3.0]
    assert vram.samples_per_second == pytest.approx([10 / 3, 10 / 3])
    metrics = trainer.callback_metrics
    assert metrics["time/epoch_seconds"] == 3.0
    assert metrics["time/samples_per_second"] == pytest.approx(10 / 3)


def test_host_memory(tmp_path):
    vram = VRAM()
    trainer = make_trainer(tmp_path, callbacks=[vram], logger=CSVLogger(tmp_path))
    trainer.fit(Tiny(), TinyData())
    gib = float(trainer.callback_metrics["memory/host_gib"])
    assert 0.05 < gib < 64
    assert vram.peak_gib == pytest.approx(gib)
    assert "memory/host_gib" in next(tmp_path.rglob("metrics.csv")).read_text().splitlines()[0]


def test_host_peak_is_this_epochs_only_if_it_rose(monkeypatch):
    vram = VRAM()
    vram._host_before = (1.0, 9.0)
    monkeypatch.setattr(module, "_host_gib", lambda: (2.0, 9.0))
    assert vram._memory(torch.device("cpu")) == {"memory/host_gib": 2.0}
    monkeypatch.setattr(module, "_host_gib", lambda: (2.0, 9.5))
    assert vram._memory(torch.device("cpu")) == {"memory/host_gib": 9.5}


def test_cuda_memory(monkeypatch):
    class Properties:
        total_memory = 8 * 2**30

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 2**30)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 2 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert VRAM()._memory(torch.device("cuda", 0)) == {
        "vram/allocated_gib": 1.0,
        "vram/reserved_gib": 2.0,
        "vram/share": 0.25,
    }


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_peak_is_per_epoch(tmp_path):
    class Hungry(Tiny):
        def training_step(self, batch, batch_idx):
            if self.current_epoch == 0:
                torch.empty(2**28, dtype=torch.uint8, device=self.device)  # a quarter GiB, freed at once
            return super().training_step(batch, batch_idx)

    seen = []

    class Seen(VRAM):
        def on_train_epoch_end(self, trainer, pl_module):
            super().on_train_epoch_end(trainer, pl_module)
            seen.append(torch.cuda.max_memory_allocated() / 2**30)

    vram = Seen()
    trainer = make_trainer(tmp_path, accelerator="gpu", devices=1, max_epochs=2, callbacks=[vram])
    trainer.fit(Hungry(), TinyData())
    assert seen[0] >= 0.25 > seen[1]
    assert 0 < trainer.callback_metrics["vram/share"] < 1
