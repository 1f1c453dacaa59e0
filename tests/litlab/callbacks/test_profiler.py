"""A clock that only the parts of a step move says what each of them must get."""

import json
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import Profiler
from torch.utils.data import DataLoader

from litlab.callbacks import StepProfiler, profiler
from litlab.callbacks.profiler import method_of, part_of
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")

SECONDS = {  # of each part, per batch; the optimizer's per step
    "waiting for data": 1.0, "copying to the device": 2.0, "transform": 4.0, "forward": 8.0, "backward": 16.0,
    "gradient clipping": 32.0, "optimizer": 64.0, "callbacks and logging": 128.0,
}  # fmt: skip
SUM = 255.0


class Clock:
    """A clock that stands still but for what is added."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def add(self, part):
        self.now += SECONDS[part]


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(profiler, "time", clock)
    return clock


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, clock):
        ctx.clock = clock
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.add("backward")
        return gradient, None


class Timed(Tiny):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def training_step(self, batch, batch_idx):
        self.clock.add("forward")
        loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return SlowBackward.apply(loss, self.clock)

    def validation_step(self, batch, batch_idx):
        self.clock.now += 1e6
        return super().validation_step(batch, batch_idx)

    def configure_gradient_clipping(self, *arguments, **options):
        self.clock.add("gradient clipping")
        super().configure_gradient_clipping(*arguments, **options)

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        optimizer.register_step_post_hook(lambda *_: self.clock.add("optimizer"))
        return optimizer


class TimedData(TinyData):
    def __init__(self, clock, samples):
        super().__init__(samples, batch_size=4)
        self.clock = clock

    def train_dataloader(self):
        def collate(samples):
            self.clock.add("waiting for data")
            return torch.utils.data.default_collate(samples)

        return DataLoader(self.dataset, batch_size=4, collate_fn=collate)

    def transfer_batch_to_device(self, batch, *arguments):
        if self.trainer.training:
            self.clock.add("copying to the device")
        return super().transfer_batch_to_device(batch, *arguments)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        if self.trainer.training:
            self.clock.add("transform")
        return batch


class Hook(Callback):
    """Half of the time of the callbacks, in the midst of forward and backward; and what is recorded when."""

    def __init__(self, clock):
        self.clock = clock
        self.recorded = []

    def on_before_backward(self, *_):
        self.clock.now += SECONDS["callbacks and logging"] / 2
        self.recorded.append(torch.autograd._profiler_enabled())


class Log(CSVLogger):
    """The other half, when Lightning writes what was logged."""

    clock: Clock

    def log_metrics(self, metrics, step=None):
        if "loss" in metrics:
            self.clock.now += SECONDS["callbacks and logging"] / 2
        super().log_metrics(metrics, step)


def profiled(clock, folder, *, batches, **options):
    logger = Log(folder)
    logger.clock = clock
    hook = Hook(clock)
    trainer = make_trainer(
        folder, logger=logger, profiler=StepProfiler(skip=1, steps=2, rows=5), callbacks=[hook], **options
    )
    trainer.fit(Timed(clock), TimedData(clock, samples=4 * batches))
    folder = next(folder.rglob("version_0"))
    return json.loads((folder / "fit-profile.json").read_text())["parts"], folder, hook


def test_each_moment_of_a_step_belongs_to_one_part(clock, tmp_path, capsys):
    parts, folder, hook = profiled(clock, tmp_path, batches=10, gradient_clip_val=1.0)
    assert parts == {part: 1000 * seconds for part, seconds in SECONDS.items()}
    assert hook.recorded == [False] * 3 + [True] * 2 + [False] * 5  # torch's profiler is on for two steps alone
    text = (folder / "fit-profile.txt").read_text()
    rulers = [number for number, line in enumerate(text.splitlines()) if line.startswith("---")]
    assert rulers[2] - rulers[1] - 1 == 5  # rows of the table
    assert capsys.readouterr().out == text
    for part, seconds in SECONDS.items():
        line = next(line for line in text.splitlines() if line.startswith(part))
        assert line.split()[-2:] == [f"{1000 * seconds:.1f}", f"{seconds / SUM:.1%}"]


@pytest.mark.parametrize(("batches", "recorded"), [(2, 1), (5, 2), (10, 2)])
def test_what_is_between_two_epochs_belongs_to_no_step(clock, tmp_path, batches, recorded):
    """Two batches are measured after the first, and two are recorded, if no epoch ends between them."""
    parts, folder, _ = profiled(clock, tmp_path, batches=batches, max_epochs=4)
    assert sum(parts.values()) == 1000 * SUM
    names = [event["name"] for event in json.loads((folder / "fit-profile.trace.json").read_text())["traceEvents"]]
    assert names.count("run_training_batch") == names.count("[Strategy]SingleDeviceStrategy.backward") == recorded
    assert "validation" not in " ".join(names)


@pytest.mark.parametrize(
    ("batches", "line"), [(1, "no step was measured, as skip is 1"), (3, "raise trainer.max_steps")]
)
def test_a_run_too_short_is_told_so(clock, tmp_path, batches, line):
    _, folder, _ = profiled(clock, tmp_path, batches=batches)
    assert line in (folder / "fit-profile.txt").read_text()


def test_an_error_ends_the_recording(tmp_path):
    class Failing(Tiny):
        def on_before_backward(self, loss):
            if torch.autograd._profiler_enabled():
                raise RuntimeError("of the model")

    with pytest.raises(RuntimeError, match="of the model"):
        make_trainer(tmp_path, profiler=StepProfiler(skip=0, steps=1)).fit(Failing(), TinyData(samples=20))
    assert not torch.autograd._profiler_enabled()


def test_every_action_of_a_step_has_a_part(tmp_path):
    """But for the one around all of it: what Lightning renames or adds would be under "other"."""
    without = set()

    class Actions(Profiler):
        def start(self, action_name):
            if part_of(action_name) is None:
                without.add(action_name)

        def stop(self, action_name):
            pass

    make_trainer(tmp_path, profiler=Actions(), limit_val_batches=0).fit(Tiny(), TinyData())
    ends = {"setup", "teardown", "configure_model", "configure_callbacks", "configure_optimizers", "prepare_data"}
    inside = {action for action in without if method_of(action) not in {*ends, "train_dataloader"}}
    assert inside == {"run_training_epoch", "run_training_batch"}


@pytest.mark.parametrize("timed", [True, False])
def test_on_a_device_the_work_counts_where_it_was_started(monkeypatch, timed):
    """The clock is read only after the device has done what is queued."""
    log = []
    monkeypatch.setattr(profiler, "time", SimpleNamespace(perf_counter=lambda: log.append("read") or 0.0))
    monkeypatch.setattr(profiler, "synchronize", lambda device: log.append("wait"))
    steps = StepProfiler()
    steps._lightning_module = Tiny()
    steps._is_timed = timed
    for part in ("forward", "forward", "backward"):
        steps._switch(part)
    assert log == (["wait", "read"] * 2 if timed else [])
