import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from litlab.callbacks import VRAM, MemorySnapshot, memory
from litlab.callbacks.memory import count_samples
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Failing, Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

MIB = 2**20
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


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
    monkeypatch.setattr(memory, "time", clock)

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
    trainer = make_trainer(tmp_path, callbacks=[vram])
    trainer.fit(Tiny(), TinyData())
    assert 0.05 < vram.peak_gib < 64
    assert vram.peak_gib == pytest.approx(float(trainer.callback_metrics["memory/host_gib"]))


def test_cuda_memory(monkeypatch):
    class Properties:
        total_memory = 8 * 2**30

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 2**30)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 2 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    measured = memory._measure_memory(torch.device("cuda", 0))
    assert measured == {"vram/allocated_gib": 1.0, "vram/reserved_gib": 2.0, "vram/share": 0.25}


@pytest.mark.gpu
@on_gpu
def test_cuda_peak_is_per_epoch(tmp_path):
    peaks = []

    class Hungry(Tiny):
        def training_step(self, batch, batch_idx):
            if self.current_epoch == 0:
                torch.empty(2**28, dtype=torch.uint8, device=self.device)  # a quarter GiB, freed at once
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            peaks.append(torch.cuda.max_memory_allocated() / 2**30)

    trainer = make_trainer(tmp_path, accelerator="gpu", devices=1, max_epochs=2, callbacks=[VRAM()])
    trainer.fit(Hungry(), TinyData())
    assert peaks[0] >= 0.25 > peaks[1]
    assert 0 < trainer.callback_metrics["vram/share"] < 1


# Snapshots


class Hungry(Tiny):
    """Allocates 8 MiB in each step."""

    def __init__(self):
        super().__init__()
        self.recorded = []

    def training_step(self, batch, batch_idx):
        self.recorded.append(torch.autograd._profiler_enabled())
        kept = torch.ones(8 * MIB // 4)
        return super().training_step(batch, batch_idx) + 0 * kept[0]


def fit_recorded(folder, model, callback, samples=24, **options):
    logger = CSVLogger(folder, name="", version="run")
    make_trainer(folder, logger=logger, callbacks=[callback], limit_val_batches=0, **options).fit(
        model, TinyData(samples)
    )


def test_table_on_the_cpu(tmp_path):
    model = Hungry()
    fit_recorded(tmp_path, model, MemorySnapshot(skip=2, steps=2))
    assert model.recorded == [False, False, True, True, False, False]
    first, *table = (tmp_path / "run/memory.txt").read_text().splitlines()
    assert first == "2 training steps"
    most = [line.split() for line in table if " aten::" in line][:2]
    ones = next(words for words in most if words[0] == "aten::ones")
    assert ones[-5:-3] == ["16.00", "MB"]


def test_a_run_that_ends_earlier_writes_what_there_is(tmp_path):
    fit_recorded(tmp_path, Tiny(), MemorySnapshot(steps=9))
    assert (tmp_path / "run/memory.txt").read_text().startswith("6 training steps\n")
    assert not torch.autograd._profiler_enabled()


def test_a_run_that_fails_stops_recording(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fit_recorded(tmp_path, Failing(), MemorySnapshot())
    assert not torch.autograd._profiler_enabled()


def test_a_snapshot_needs_a_folder(tmp_path):
    with pytest.raises(UserError, match=r"trainer\.callbacks: MemorySnapshot writes into the run folder"):
        make_trainer(tmp_path, callbacks=[MemorySnapshot()]).fit(Tiny(), TinyData())


@pytest.fixture
def asked(monkeypatch):
    """What is asked of CUDA's allocator, where there is none."""
    asked = []
    monkeypatch.setattr(memory, "_is_cuda", lambda trainer: True)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda enabled="all": asked.append(enabled))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: asked.append(path.rpartition("/")[2]))
    return asked


def test_steps_on_cuda(tmp_path, asked):
    fit_recorded(tmp_path, Tiny(), MemorySnapshot(skip=1, steps=2))
    assert asked == ["all", "memory.pickle", None]


def test_out_of_memory_on_cuda(tmp_path, asked):
    class Greedy(Tiny):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().training_step(batch, batch_idx)

    with pytest.raises(torch.OutOfMemoryError):
        fit_recorded(tmp_path, Greedy(), MemorySnapshot(steps=2))
    assert asked == ["all", "memory-oom.pickle", None]


@pytest.mark.gpu
@on_gpu
def test_snapshot_of_a_gpu(tmp_path):
    fit_recorded(tmp_path, Tiny(), MemorySnapshot(steps=2), accelerator="gpu", devices=1)
    assert (tmp_path / "run/memory.pickle").stat().st_size > 1000
    assert not any(torch.cuda.memory._snapshot()["device_traces"])
