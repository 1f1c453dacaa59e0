"""What callbacks sum or compare over ranks, in one run of two processes."""

import json
import sys

import torch

from tests.litlab.callbacks.tiny import TinyData
from tests.litlab.parallel import program

START = """
import json, sys, warnings
warnings.filterwarnings("error", ".*(memory|time)/.*sync_dist.*")  # of VRAM, not of the tiny model
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from litlab.callbacks import EMA, VRAM, Baselines, ConfusionMatrix, ProgressBar, RunSummary
from litlab.callbacks import ForecastPlots, TextSamples

folder, devices = sys.argv[1], int(sys.argv[2])
strategy = {"devices": devices, "strategy": "ddp" if devices > 1 else "auto"}
"""
FIT = """
torch.manual_seed(0)
vram, matrix, summary, checkpoint = VRAM(), ConfusionMatrix(), RunSummary(), ModelCheckpoint(folder)
trainer = make_trainer(
    folder, logger=CSVLogger(folder), enable_checkpointing=True, enable_progress_bar=True,
    callbacks=[vram, EMA(0.5), matrix, summary, ProgressBar(), checkpoint], **strategy,
)
model, data = Tiny(), TinyData(samples=16)
trainer.fit(model, data)
trainer.test(model, data, ckpt_path=checkpoint.best_model_path, weights_only=True, verbose=False)
summary.print_summary(trainer)
result = {
    "samples": round(vram.samples_per_second * vram._seconds),
    "counts": matrix.counts.tolist(),
    "weights": model.network[4].bias.tolist(),
}
"""
TABLES = """
from tests.litlab.callbacks.tiny import evaluate
from tests.litlab.callbacks.test_text_samples import Texts, read
from tests.litlab.callbacks.tiny_series import TinySeries, repeat_last


class Shared(Texts):
    def setup(self, stage):
        self.order = Texts().order.tensor_split(self.trainer.world_size)[self.trainer.global_rank]

    def baselines(self):
        print("baselines on", self.trainer.global_rank)
        return {"none": {"test/acc": 0.5}}


def test(model, data, *callbacks):
    logger = CSVLogger(folder, name="", version=callbacks[0].__class__.__name__)
    options = {"logger": logger, "use_distributed_sampler": False, **strategy}
    evaluate(folder, model, data, *callbacks, **options)


test(read, Shared(), TextSamples(5), Baselines())
test(repeat_last, TinySeries(21), ForecastPlots(3))
"""
SAVE = """
with open(f"{folder}/rank{trainer.global_rank}.json", "w") as file:
    json.dump(result, file)
"""


def test_two_processes(tmp_path, monkeypatch):
    """An odd number of windows: the processes have unlike shares."""
    two, one = tmp_path / "2", tmp_path / "1"
    two.mkdir()
    script = two / "run.py"
    script.write_text(START + FIT + TABLES + SAVE)
    printed = program.wait(program.start(script, 2, two, 2))
    first, second = (json.loads((two / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first["samples"] == 16
    assert (
        torch.tensor(first["counts"]).sum(1).tolist()
        == TinyData(16).dataset.tensors[1].bincount().tolist()
    )
    assert printed[0].count("epoch 1/1") == printed[0].count("Run summary") == 1
    assert (
        printed[0].count("baselines on 0")
        == printed[0].count("Test: the model beside its baselines")
        == 2
    )
    assert "baselines on 1" not in printed[0] + printed[1]
    monkeypatch.setattr(sys, "argv", ["run.py", str(one), "1"])
    # here: another process would take seconds to start
    exec(START + TABLES, {"__name__": "run"})
    for name in ("TextSamples/texts", "ForecastPlots/forecast_metrics", "ForecastPlots/backtest"):
        alone, shared = ((folder / f"{name}.csv").read_text() for folder in (one, two))
        assert alone == shared
        assert alone.count("\n") > 1
    assert first == second
