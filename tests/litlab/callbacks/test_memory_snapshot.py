import json
import warnings

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from litlab.callbacks import MemorySnapshot, StepProfiler
from litlab.callbacks import memory_snapshot as module
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

MIB = 2**20


class Hungry(Tiny):
    """Allocates 8 MiB in each step, of which 4 MiB stay to its end, 2 MiB by an operation within another."""

    def __init__(self):
        super().__init__()
        self.recorded = []

    def training_step(self, batch, batch_idx):
        self.recorded.append(torch.autograd._profiler_enabled())
        kept = torch.full((4 * MIB // 4,), 1.0)
        for _ in range(2):
            torch.full((2 * MIB // 4,), 1.0)
        return super().training_step(batch, batch_idx) + 0 * kept[0]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """The folder and the model of a fit of 6 batches, the third and fourth of which are recorded."""
    folder, model = tmp_path_factory.mktemp("snapshot"), Hungry()
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr(module, "rank_zero_info", lines.append)
        trainer = make_trainer(
            folder, logger=CSVLogger(folder), callbacks=[MemorySnapshot(skip=2, steps=2)], limit_val_batches=0
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have many workers")
            trainer.fit(model, TinyData(samples=24))
    return next(folder.rglob("version_0")), model, lines


def test_table_on_the_cpu(snapshot):
    folder, _, lines = snapshot
    table = (folder / "memory.txt").read_text()
    first, _, _, most, *_ = table.splitlines()
    assert first.startswith("What 2 training steps allocated, ")
    name, size, _ = most.split()
    assert (name, float(size)) == ("aten::full", 8.0)  # which aten::empty allocates
    peak = float(first.split()[5])
    assert 6 <= peak < 7
    assert lines == [
        "trainer.callbacks: MemorySnapshot can't take a snapshot with trainer.accelerator: cpu, only on CUDA; "
        "memory.txt will have the operations that allocate most",
        f"MemorySnapshot: 2 steps took up to {peak} MiB beside weights: {folder / 'memory.txt'}",
    ]


def test_curve_on_the_cpu(snapshot):
    folder, _, _ = snapshot
    events = json.loads((folder / "memory.trace.json").read_text())["traceEvents"]
    curve = [event["args"]["MiB"] for event in events if event["name"] == "allocated MiB" and event["ph"] == "C"]
    assert 6 < max(curve) < 7
    assert not any(event["name"] == "[memory]" for event in events)


def test_other_steps_are_not_recorded(snapshot):
    assert snapshot[1].recorded == [False, False, True, True, False, False]


def test_a_run_that_ends_earlier_writes_what_there_is(tmp_path):
    callback = MemorySnapshot(skip=0, steps=9)
    make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[callback]).fit(Tiny(), TinyData())
    assert next(tmp_path.rglob("memory.txt")).read_text().startswith("What 3 training steps allocated")
    assert not torch.autograd._profiler_enabled()


def test_a_run_that_fails_stops_recording(tmp_path):
    class Failing(Tiny):
        def training_step(self, batch, batch_idx):
            raise RuntimeError("of the model")

    with pytest.raises(RuntimeError, match="of the model"):
        make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[MemorySnapshot()]).fit(Failing(), TinyData())
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "MemorySnapshot writes into the run folder, which there is none of with trainer.logger: false or"),
        (
            {"logger": True, "profiler": StepProfiler()},
            "MemorySnapshot uses torch's profiler on the CPU, as trainer.profiler: StepProfiler does, and there can be",
        ),
    ],
)
def test_what_it_cannot_work_with(tmp_path, options, line):
    if "logger" in options:
        options = {**options, "logger": CSVLogger(tmp_path)}
    with pytest.raises(UserError) as error:
        make_trainer(tmp_path, callbacks=[MemorySnapshot()], **options).fit(Tiny(), TinyData())
    assert str(error.value).startswith(f"trainer.callbacks: {line}")


class OnCuda(MemorySnapshot):
    def setup(self, *arguments, **options):
        super().setup(*arguments, **options)
        self._cuda = True


@pytest.fixture
def asked(monkeypatch):
    """What is asked of CUDA's allocator, where there is none."""
    asked = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda enabled="all": asked.append(enabled))
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: asked.append(path.rpartition("/")[2]))
    return asked


def test_steps_on_cuda(tmp_path, asked):
    callback = OnCuda(skip=1, steps=2)
    make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[callback]).fit(Tiny(), TinyData(samples=20))
    assert asked == ["all", "memory.pickle", None]


def test_out_of_memory_on_cuda(tmp_path, asked):
    class Greedy(Tiny):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().training_step(batch, batch_idx)

    trainer = make_trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[OnCuda(steps=2)])
    with pytest.raises(torch.OutOfMemoryError):
        trainer.fit(Greedy(), TinyData())
    assert asked == ["all", "memory-oom.pickle", None]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_snapshot_of_a_gpu(tmp_path):
    callback = MemorySnapshot(skip=0, steps=2)
    trainer = make_trainer(tmp_path, accelerator="gpu", devices=1, logger=CSVLogger(tmp_path), callbacks=[callback])
    trainer.fit(Tiny(), TinyData())
    assert next(tmp_path.rglob("memory.pickle")).stat().st_size > 1000
    assert not any(torch.cuda.memory._snapshot()["device_traces"])
