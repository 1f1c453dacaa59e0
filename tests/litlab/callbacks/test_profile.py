"""A clock that only the parts of a step move says what each of them must get."""

import json
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import Profiler
from torch.utils.data import DataLoader

from litlab.callbacks import StepProfiler, step_clock
from litlab.callbacks.profile_report import PYTHON
from litlab.callbacks.step_clock import method_of, part_of
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
    monkeypatch.setattr(step_clock, "time", clock)
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
    profiler, hook = StepProfiler(skip=1, steps=2, rows=5), Hook(clock)
    trainer = make_trainer(folder, logger=logger, profiler=profiler, callbacks=[hook], **options)
    trainer.fit(Timed(clock), TimedData(clock, samples=4 * batches))
    folder = next(folder.rglob("version_0"))
    return json.loads((folder / "fit-profile.json").read_text()), folder, hook


def test_each_moment_of_a_step_belongs_to_one_part(clock, tmp_path, capsys):
    found, folder, hook = profiled(clock, tmp_path, batches=10, gradient_clip_val=1.0)
    assert found["parts"] == {part: 1000 * seconds for part, seconds in SECONDS.items()} | {"other": 0.0}
    assert found["shares"] == {part: seconds / SUM for part, seconds in SECONDS.items()} | {"other": 0.0}
    assert found["step_ms"] == [1000 * SUM] * 3
    assert found["steps"] == [2, 2, 2]
    assert hook.recorded == [False] * 5 + [True] * 2 + [False] * 3  # torch's profiler is on for two steps alone
    text = (folder / "fit-profile.txt").read_text()
    assert capsys.readouterr().out == text
    for part, seconds in SECONDS.items():
        assert [part, f"{1000 * seconds:.1f}", f"{seconds / SUM:.1%}"] == text[text.index(part) :].splitlines()[
            0
        ].rsplit(None, 2)
    assert "A step took 255000.0 ms as it is, 255000.0 ms with the clock, 255000.0 ms with torch's profiler." in text


def test_operations_and_trace_are_those_of_the_recorded_steps(clock, tmp_path):
    found, folder, _ = profiled(clock, tmp_path, batches=10)
    calls = {operation["name"]: operation["calls"] for operation in found["operations"]}
    assert calls["aten::convolution_backward"] == calls["SlowBackwardBackward"] == 1
    assert PYTHON in calls
    assert not any("Optimizer.step" in name or "[" in name for name in calls)
    costs = [operation["self_ms"] for operation in found["operations"]]
    assert costs == sorted(costs, reverse=True)
    trace = json.loads((folder / "fit-profile.trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in trace]
    assert names.count("run_training_batch") == names.count("[Strategy]SingleDeviceStrategy.backward") == 2
    assert "validation" not in " ".join(names)
    assert (folder / "fit-profile.txt").read_text().count("\naten::") <= 5  # rows


def test_what_is_between_two_epochs_belongs_to_no_step(clock, tmp_path):
    """Three batches an epoch: of the recorded steps, numbers 5 and 6, the first is the last of an epoch."""
    found, folder, _ = profiled(clock, tmp_path, batches=3, max_epochs=4)
    assert sum(found["parts"].values()) == 1000 * SUM
    assert found["step_ms"] == [1000 * SUM] * 3
    for name in ("fit-profile.trace.json", "fit-profile.trace-2.json"):
        events = [event["name"] for event in json.loads((folder / name).read_text())["traceEvents"]]
        assert events.count("run_training_batch") == 1
        assert "validation" not in " ".join(events)
    assert {op["name"]: op["calls"] for op in found["operations"]}["SlowBackwardBackward"] == 1


def test_a_step_has_all_batches_of_its_gradient(clock, tmp_path):
    found, folder, _ = profiled(clock, tmp_path, batches=14, accumulate_grad_batches=2)
    assert (found["batches"], found["steps"]) == (2, [2, 2, 2])
    per_batch = {part: 2000 * seconds for part, seconds in SECONDS.items()}
    per_step = {part: 1000 * SECONDS[part] for part in ("optimizer", "gradient clipping")}
    assert found["parts"] == per_batch | per_step | {"callbacks and logging": 192e3, "other": 0.0}  # one log per step
    assert "(2 steps of 2 batches, after 1 that were skipped)" in (folder / "fit-profile.txt").read_text()


@pytest.mark.parametrize(
    ("batches", "line"),
    [
        (1, "StepProfiler: too few training steps: 1 are skipped, and 0 were left to measure; raise trainer.max_steps"),
        (5, "There are no operations: the run ended before them; raise trainer.max_steps."),
    ],
)
def test_a_run_too_short_is_told_so(clock, tmp_path, batches, line):
    _, folder, _ = profiled(clock, tmp_path, batches=batches)
    assert line in (folder / "fit-profile.txt").read_text()


def test_manual_optimization_is_told_in_a_line(tmp_path, capsys):
    class Manual(Tiny):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            self.optimizers().zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            self.optimizers().step()

    trainer = make_trainer(tmp_path, profiler=StepProfiler(skip=1, steps=1))
    trainer.fit(Manual(), TinyData(samples=20))
    assert "Backward and optimizer are in forward: with manual optimization" in capsys.readouterr().out


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


def test_on_a_device_the_work_counts_where_it_was_started(monkeypatch):
    """The clock is read only after the device has done what is queued."""
    log = []
    monkeypatch.setattr(step_clock, "time", SimpleNamespace(perf_counter=lambda: log.append("read") or 0.0))
    clock = step_clock.StepClock(lambda: log.append("wait"))
    clock.switch("forward")
    clock.switch("forward")
    clock.switch("backward")
    clock.switch(None)
    assert log == ["wait", "read"] * 3
