"""What callbacks sum or compare over ranks, in one run of two processes."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from .tiny import TinyData

PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("error", ".*(memory|time)/.*sync_dist.*")  # of VRAM, not of the tiny model
sys.path.insert(0, sys.argv[1])
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from callbacks.tiny import Tiny, TinyData, make_trainer
from project.callbacks import EMA, VRAM, Compile, ImagePlots, ProgressBar, RunSummary

folder = sys.argv[2]
torch.manual_seed(0)
vram, plots, summary, checkpoint = VRAM(), ImagePlots(4), RunSummary(), ModelCheckpoint(folder)
compile = Compile("default", backend="eager", graph_breaks=True)
trainer = make_trainer(
    folder, devices=2, strategy="ddp", logger=CSVLogger(folder), enable_checkpointing=True, enable_progress_bar=True,
    callbacks=[compile, vram, EMA(0.5), plots, summary, ProgressBar(), checkpoint],
)
model, data = Tiny(), TinyData(samples=16)
trainer.fit(model, data)
trainer.test(model, data, ckpt_path=checkpoint.best_model_path, weights_only=True, verbose=False)
summary.print_summary(trainer)
result = {
    "samples": vram.samples_per_second[0] * vram.epoch_seconds[0],
    "seconds": vram.epoch_seconds,
    "peak": vram.peak_gib,
    "counts": plots.counts.tolist(),
    "weights": model.network[4].bias.tolist(),
}
with open(f"{folder}/rank{trainer.global_rank}.json", "w") as file:
    json.dump(result, file)
"""


def test_two_processes(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(PROGRAM)
    tests = Path(__file__).parents[1]
    command = [sys.executable, str(script), str(tests), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    assert round(first["samples"]) == 16
    assert torch.tensor(first["counts"]).sum(1).tolist() == TinyData(16).dataset.tensors[1].bincount().tolist()
    assert done.stdout.count("epoch 1/1") == 1
    assert done.stdout.count("Run summary") == 1
    assert len(list(tmp_path.rglob("graph_breaks.txt"))) == 1
