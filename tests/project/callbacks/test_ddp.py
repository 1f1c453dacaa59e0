"""What callbacks sum or compare over ranks, in one run of two processes."""

import json
import sys

import pytest
import torch

from tests.conftest import ROOT
from tests.litlab.callbacks.tiny import TinyData
from tests.processes import Python, ranks

PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("error", ".*(memory|time)/.*sync_dist.*")  # of VRAM, not of the tiny model
sys.path.insert(0, sys.argv[1])
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from litlab.callbacks import EMA, VRAM, Compile, ConfusionMatrix, ProgressBar, RunSummary
from project.callbacks.image_plots import ImagePlots

folder = sys.argv[2]
torch.manual_seed(0)
vram, matrix, summary, checkpoint = VRAM(), ConfusionMatrix(), RunSummary(), ModelCheckpoint(folder)
compile = Compile("default", backend="eager")
trainer = make_trainer(
    folder, devices=2, strategy="ddp", logger=CSVLogger(folder), enable_checkpointing=True, enable_progress_bar=True,
    callbacks=[compile, vram, EMA(0.5), matrix, ImagePlots(4), summary, ProgressBar(), checkpoint],
)
model, data = Tiny(), TinyData(samples=16)
trainer.fit(model, data)
epoch_seconds = float(trainer.callback_metrics["time/epoch_seconds"])
trainer.test(model, data, ckpt_path=checkpoint.best_model_path, weights_only=True, verbose=False)
summary.print_summary(trainer)
result = {
    "samples": round(vram.samples_per_second * epoch_seconds),
    "counts": matrix.counts.tolist(),
    "weights": model.network[4].bias.tolist(),
}
with open(f"{folder}/rank{trainer.global_rank}.json", "w") as file:
    json.dump(result, file)
"""


TABLES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from lightning.pytorch.loggers import CSVLogger
from tests.project.callbacks.test_text_samples import Reader, Texts
from tests.litlab.callbacks.tiny import make_trainer
from tests.project.callbacks.tiny_series import TinyForecaster, TinySeries
from litlab.callbacks import Baselines
from project.callbacks.forecast_plots import ForecastPlots
from project.callbacks.text_samples import TextSamples
from project.models.lstm_forecaster import LSTMForecaster
from tests.litlab.tasks import tiny_series

folder, devices = sys.argv[2], int(sys.argv[3])


class Shared(Texts):
    def setup(self, stage):
        self.order = self.order.tensor_split(self.trainer.world_size)[self.trainer.global_rank]

    def baselines(self):
        print("baselines on", self.trainer.global_rank)
        return {"none": {"test/acc": 0.5}}


strategy = {"devices": devices, "strategy": "ddp" if devices > 1 else "auto", "use_distributed_sampler": False}
trainer = make_trainer(
    folder, logger=CSVLogger(folder, name="", version="text"), callbacks=[TextSamples(5), Baselines()], **strategy
)
trainer.test(Reader(), Shared(), verbose=False)
trainer = make_trainer(
    folder, logger=CSVLogger(folder, name="", version="series"), callbacks=[ForecastPlots(3)], **strategy
)
trainer.test(TinyForecaster(), TinySeries(21), verbose=False)
data = tiny_series.TinySeries(windows=20)
model = LSTMForecaster(context_length=12, horizon=6, num_targets=2, hidden_size=4, skip="ridge")
trainer = make_trainer(folder, **strategy)
trainer.fit(model, data)
solved = {"ridges": len(data.ridge_calls), "weights": [weight.sum().item() for weight in model.state_dict().values()]}
with open(f"{folder}/solved{trainer.global_rank}.json", "w") as file:
    json.dump(solved, file)
"""


def run(folder, program, *arguments) -> str:
    """Runs a program with two ranks; returns what the first one printed."""
    script = folder / "run.py"
    script.write_text(program)
    processes = [
        Python(script, ROOT, folder, *arguments, cwd=folder, environment=of_rank, merge=True) for of_rank in ranks(2)
    ]
    printed = [process.communicate(120)[0] for process in processes]
    assert [process.wait() for process in processes] == [0, 0], printed
    return printed[0]


def test_two_processes(tmp_path):
    printed = run(tmp_path, PROGRAM)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert first["samples"] == 16
    assert torch.tensor(first["counts"]).sum(1).tolist() == TinyData(16).dataset.tensors[1].bincount().tolist()
    assert printed.count("epoch 1/1") == 1
    assert printed.count("Run summary") == 1


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_two_processes_write_the_test_tables_of_one(tmp_path, monkeypatch, capsys):
    """An odd number of windows: the processes have unlike shares. A ridge is solved by one of them."""
    pytest.importorskip("project.callbacks.text_samples")
    pytest.importorskip("project.callbacks.forecast_plots")
    for devices in ("1", "2"):
        folder = tmp_path / devices
        folder.mkdir()
        if devices == "1":  # here: another process would take seconds to start
            monkeypatch.setattr(sys, "argv", ["run.py", str(ROOT), str(folder), devices])
            monkeypatch.setattr(sys, "path", list(sys.path))
            exec(TABLES, {"__name__": "run"})
            out = capsys.readouterr().out
        else:
            out = run(folder, TABLES, devices)
        assert out.count("baselines on 0") == 1
        assert "baselines on 1" not in out
        assert out.count("Test: the model beside its baselines") == 1
    for name in ("text/texts.csv", "series/forecast_metrics.csv", "series/backtest.csv"):
        one, two = ((tmp_path / devices / name).read_text() for devices in ("1", "2"))
        assert one == two
        assert one.count("\n") > 1
    assert (tmp_path / "2/series/forecasts.png").is_file()
    first, second = (json.loads((tmp_path / f"2/solved{rank}.json").read_text()) for rank in (0, 1))
    assert (first["ridges"], second["ridges"]) == (1, 0)
    assert first["weights"] == second["weights"]
