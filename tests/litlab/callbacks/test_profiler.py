"""A clock that only the parts of a step move says what each of them must get."""

import json
import re

from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, default_collate

from litlab.callbacks import StepProfiler, profiler
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

SECONDS = {  # of each part, per batch
    "waiting for data": 1.0,
    "copying to the device": 2.0,
    "transform": 4.0,
    "forward": 8.0,
    "backward": 16.0,
    "optimizer": 32.0,
    "callbacks and the rest": 64.0,
}


class Clock(Callback):
    """A clock that stands still but for what is added."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def add(self, part):
        self.now += SECONDS[part]

    def on_train_batch_end(self, *_):
        self.add("callbacks and the rest")


class Timed(Tiny):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def transfer_batch_to_device(self, batch, *_):
        self.clock.add("copying to the device")
        return batch

    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.clock.add("transform")
        return batch

    def training_step(self, batch, batch_idx):
        self.clock.add("forward")
        loss = super().training_step(batch, batch_idx)
        loss.register_hook(lambda _: self.clock.add("backward"))
        return loss

    def validation_step(self, batch, batch_idx):
        self.clock.now += 1e6

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        optimizer.register_step_post_hook(lambda *_: self.clock.add("optimizer"))
        return optimizer

    def train_dataloader(self):
        def collate(samples):
            self.clock.add("waiting for data")
            return default_collate(samples)

        return DataLoader(TinyData(24).dataset, batch_size=4, collate_fn=collate)


def test_parts_of_a_step_and_its_trace(tmp_path, monkeypatch, capsys):
    """Two batches are measured after the first, and two are recorded, all that twice; validations
    belong to none.
    """
    clock = Clock()
    monkeypatch.setattr(profiler, "time", clock)
    trainer = make_trainer(
        tmp_path, max_epochs=2, logger=CSVLogger(tmp_path, "", "run"), callbacks=[clock],
        profiler=StepProfiler(skip=1, steps=2, repeat=2, with_stack=True), val_check_interval=1,
    )  # fmt: skip
    trainer.fit(Timed(clock), val_dataloaders=TinyData(24).val_dataloader())
    folder, out = tmp_path / "run", capsys.readouterr().out
    rows = dict(re.findall(r"^(\w[a-z ]+?) +([\d.]+) +0\.\d+$", out, re.MULTILINE))
    assert {part: float(ms) for part, ms in rows.items()} == {
        part: 1000 * s for part, s in SECONDS.items()
    }
    assert (folder / "fit-profile.txt").read_text() == out.removesuffix("\n")
    assert re.search(rf"^callbacks.* {64 / 127:.6f}$", out, re.MULTILINE)
    assert "aten::convolution_backward" in out
    for name in ("fit-profile.pt.trace.json", "fit-profile.1.pt.trace.json"):
        events = json.loads((folder / name).read_text())["traceEvents"]
        assert [event["name"] for event in events].count("run_training_batch") == 2
        assert "python_function" in {event.get("cat") for event in events}
