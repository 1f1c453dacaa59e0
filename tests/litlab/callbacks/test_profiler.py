"""A clock that only the parts of a step move says what each of them must get."""

import json
import re

from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, default_collate

from litlab.callbacks import StepProfiler
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


class Clock:
    """A clock that stands still but for what is added."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def add(self, part, result=None):
        """Let the time of a part pass; return its result."""
        self.now += SECONDS[part]
        return result


def test_parts_of_a_step_and_its_trace(tmp_path, monkeypatch, capsys):
    """Two batches are measured after the first, and two are recorded, all that twice; validations
    belong to none.
    """
    clock, model = Clock(), Tiny()
    monkeypatch.setattr("litlab.callbacks.profiler.time", clock)
    model.transfer_batch_to_device = lambda batch, *_: clock.add("copying to the device", batch)
    model.on_after_batch_transfer = lambda batch, _: clock.add("transform", batch)
    model.network.register_forward_hook(lambda *_: clock.add("forward"))
    model.network[4].bias.register_hook(lambda _: clock.add("backward"))
    optimizer = model.configure_optimizers()
    optimizer.register_step_post_hook(lambda *_: clock.add("optimizer"))
    model.configure_optimizers = lambda: optimizer
    rest = LambdaCallback(on_train_batch_end=lambda *_: clock.add("callbacks and the rest"))
    data = TinyData(24)

    def collate(samples):
        return clock.add("waiting for data", default_collate(samples))

    trainer = make_trainer(
        tmp_path, max_epochs=2, logger=CSVLogger(tmp_path, "", "run"), callbacks=[rest],
        profiler=StepProfiler(skip=1, steps=2, repeat=2, with_stack=True), val_check_interval=1,
    )  # fmt: skip
    loader = DataLoader(data.dataset, batch_size=4, collate_fn=collate)
    trainer.fit(model, loader, data.val_dataloader())
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
