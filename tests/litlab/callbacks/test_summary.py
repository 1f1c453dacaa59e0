"""The table at the end of a run."""

import os
import re

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.callbacks import VRAM, Compile, RunSummary
from litlab.callbacks.summary import ModelTable
from litlab.runs.folder import RunFolder, write_json
from litlab.runs.record import RunRecord
from litlab.runs.run import Run
from litlab.util.text import format_number
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.litlab.runs.make import command


def test_fit_of_a_resumed_run_and_test(tmp_path, monkeypatch, capsys):
    tmp_path = tmp_path / "a&run"
    tmp_path.mkdir()
    # An hour and a half were spent before
    write_json(tmp_path / "metrics.json", {"seconds": 5400.0})
    record = RunRecord(Run(command(), RunFolder(tmp_path)))
    summary, checkpoint = RunSummary(), ModelCheckpoint(monitor="val/score", mode="max")
    callbacks = [VRAM(), Compile("default", backend="eager"), record, summary, checkpoint]
    trainer = make_trainer(
        tmp_path, max_epochs=3, num_sanity_val_steps=0, logger=TensorBoardLogger(tmp_path, "", ""),
        enable_checkpointing=True, callbacks=callbacks,
    )  # fmt: skip
    model, data, scores = Tiny(), TinyData(), [0.5, 0.75, 0.25]
    model.on_validation_epoch_end = lambda: model.log("val/score", scores[model.current_epoch])
    data.generated, data.description = True, "10 noise images"
    model.stand_in = "RANDOM, not pre-trained"
    trainer.fit(model, data)
    trainer.test(model, data, ckpt_path="best", weights_only=True, verbose=False)
    monkeypatch.setenv("COLUMNS", "40")  # paths stay whole
    capsys.readouterr()
    summary.print_summary(trainer)
    out = capsys.readouterr().out
    assert f"'{os.path.relpath(tmp_path)}'" in out, "a command is printed as a shell takes it"
    rows = dict(re.findall("^(.+?) {2,}(.+)$", out, re.MULTILINE))
    assert rows == rows | {
        "best val/score": "0.7500",
        "test/loss": format_number(float(trainer.callback_metrics["test/loss"])),
        "epochs": "3",
        "run folder": os.path.relpath(tmp_path),
        "checkpoint": os.path.relpath(checkpoint.best_model_path, tmp_path),
    }
    assert 90 <= float(rows["minutes"]) < 91
    assert "GiB" in rows["peak memory"]
    assert "last epoch" in rows["samples/s"]
    assert float(rows["compile"].removesuffix(" s")) > 0
    assert rows["GENERATED_DATA"].startswith("not real: 10 noise images")
    assert "10 noise images" in (tmp_path / "GENERATED_DATA.txt").read_text()
    assert (tmp_path / "RANDOM_WEIGHTS.txt").read_text() == model.stand_in


def test_flops_are_shown_where_they_are_counted(tmp_path, capsys):
    for example in (None, torch.zeros(2, 3, 8, 8)):
        model = Tiny()
        model.example_input_array = example
        make_trainer(tmp_path, callbacks=[ModelTable()]).fit(model, TinyData())
        out = capsys.readouterr().out
        assert "700 parameters, 700 of them trained" in out
        assert ("FLOPs" in out) == (example is not None)
