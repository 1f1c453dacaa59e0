import io
import os

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from litlab.callbacks import VRAM, RunSummary
from litlab.runs.folder import write_json
from litlab.runs.record import RunRecord
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Scripted(Tiny):
    """Reaches its best validation accuracy, 0.75, in the second of three epochs."""

    def on_validation_epoch_end(self):
        self.log("val/score", [0.5, 0.75, 0.25][self.current_epoch])


def text_of(summary, trainer):
    console = Console(file=io.StringIO(), width=300)
    console.print(summary.make_table(trainer))
    return console.file.getvalue()


def row(text, name):
    (line,) = [line for line in text.splitlines() if f" {name} " in line]
    return line


def test_fit_and_test(tmp_path, capsys):
    summary = RunSummary()
    checkpoint = ModelCheckpoint(monitor="val/score", mode="max")
    trainer = make_trainer(
        tmp_path,
        max_epochs=3,
        num_sanity_val_steps=0,
        logger=TensorBoardLogger(tmp_path, name="tiny"),
        enable_checkpointing=True,
        callbacks=[VRAM(), summary, checkpoint],
    )
    data = TinyData()
    model = Scripted()
    trainer.fit(model, data)
    trainer.test(model, data, ckpt_path="best", weights_only=True, verbose=False)
    text = text_of(summary, trainer)
    assert "0.75" in row(text, "best val/score")
    assert f"{float(trainer.callback_metrics['test/loss']):.4g}" in row(text, "test/loss")
    assert "3" in row(text, "epochs")
    assert "GiB" in row(text, "peak memory")
    assert "samples/s" in text
    assert "minutes" in text
    assert os.path.relpath(tmp_path / "tiny" / "version_0") in row(text, "run folder")
    assert f"tensorboard --logdir {os.path.relpath(tmp_path / 'tiny' / 'version_0')}" in text
    assert os.path.relpath(checkpoint.best_model_path) in text
    assert "DATA" not in text
    assert not list(tmp_path.rglob("GENERATED_DATA.txt"))
    capsys.readouterr()
    summary.print_summary(trainer)
    assert "Run summary" in capsys.readouterr().out


def test_generated_data_is_loud(tmp_path):
    summary = RunSummary()
    data = TinyData()
    data.generated = True
    data.description = "10 noise images"
    trainer = make_trainer(tmp_path, logger=TensorBoardLogger(tmp_path, "", ""), callbacks=[summary])
    trainer.fit(Tiny(), data)
    assert "GENERATED, not real: 10 noise images" in text_of(summary, trainer)
    assert "10 noise images" in next(tmp_path.rglob("GENERATED_DATA.txt")).read_text()
    later = RunSummary()  # of another command on the run
    trainer = make_trainer(tmp_path, logger=TensorBoardLogger(tmp_path, "", ""), callbacks=[later])
    trainer.test(Tiny(), TinyData(), verbose=False)
    assert "GENERATED, not real: 10 noise images" in text_of(later, trainer)


@pytest.mark.parametrize("fast_dev_run", [False, True])
def test_nothing_to_lean_on(tmp_path, fast_dev_run, monkeypatch):
    """No logger, no checkpoints, no VRAM callback, perhaps fast_dev_run: fewer rows, no files."""
    monkeypatch.chdir(tmp_path)
    summary = RunSummary()
    data = TinyData()
    data.generated = True
    logger = CSVLogger(tmp_path) if fast_dev_run else False
    trainer = make_trainer(tmp_path, fast_dev_run=fast_dev_run, logger=logger, callbacks=[summary])
    trainer.fit(Tiny(), data)
    text = text_of(summary, trainer)
    assert "1" in row(text, "epochs")
    assert "run folder" not in text
    assert "best" not in text
    assert list(tmp_path.iterdir()) == []


def test_test_alone(tmp_path):
    summary = RunSummary()
    trainer = make_trainer(tmp_path, callbacks=[summary])
    trainer.test(Tiny(), TinyData(), verbose=False)
    text = text_of(summary, trainer)
    assert "test/loss" in text
    assert "epochs" not in text


def test_minutes_are_those_of_the_whole_run(tmp_path):
    """A resumed run: an hour and a half were spent before."""
    logger = TensorBoardLogger(tmp_path, name="", version="")
    write_json(tmp_path / "metrics.json", {"seconds": 5400.0})
    summary = RunSummary()
    trainer = make_trainer(tmp_path, logger=logger, callbacks=[RunRecord(), summary])
    trainer.fit(Tiny(), TinyData())
    minutes = float(row(text_of(summary, trainer), "minutes").split()[-2])
    assert 90 <= minutes < 91
