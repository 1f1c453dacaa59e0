"""The bar on a terminal, and a line for each epoch everywhere."""

import io
import re
from contextlib import redirect_stdout

import pytest
from lightning.pytorch.callbacks import LambdaCallback

from litlab.callbacks import ProgressBar, progress
from tests.litlab.callbacks import tiny
from tests.litlab.callbacks.tiny import Tiny, TinyData


class Terminal(io.StringIO):
    """All that was ever written to it."""

    encoding = "utf-8"

    def isatty(self):
        return True

    def states(self) -> list[str]:
        """Return every line that was on the screen."""
        return [line.strip() for line in re.split(r"[\r\n]|\x1b\[[\d;?]*[A-Za-z]", self.getvalue())]


@pytest.fixture(autouse=True)
def _hundred_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "101")
    monkeypatch.setenv("LINES", "40")


def fit(folder, *callbacks, bar=ProgressBar, samples=24, **options):
    options |= {"data": TinyData(samples), "enable_progress_bar": True}
    return tiny.fit(folder, Tiny(), bar(), *callbacks, **options)


def test_one_plain_line_an_epoch_with_its_own_metrics(tmp_path, capsys):
    def log(trainer, model, *_):
        model.log("train/epoch", float(model.current_epoch), on_step=False, on_epoch=True)
        model.log("time/hidden", 1.0)

    fit(tmp_path, LambdaCallback(on_train_batch_end=log), max_epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for number, line in enumerate(lines):
        metrics = rf"train/epoch {number}.0000 +train/loss [\d.]+ +val/acc [\d.e-]+"
        assert re.fullmatch(rf"epoch {number + 1}/2  {metrics} +[\d.]+ s", line), line


def test_bars_end_full_show_the_loss_and_keep_the_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWS", 0.0)
    with redirect_stdout(Terminal()) as screen:
        fit(tmp_path, max_epochs=2).test(Tiny(), TinyData(24), verbose=False)
    lines = [line for line in screen.states() if "train/loss" in line]
    for number, line in zip("12", lines, strict=True):
        assert re.match(rf"epoch {number}/2  train/loss [\d.]+ +val/acc", line), line
    kinds = r"(epoch \d/2|Validation.*|Testing.*):.*\|"
    bars = [line for line in screen.states() if re.match(kinds, line)]
    assert re.search(r"loss=\d\.\d+", [line for line in bars if line.startswith("epoch")][-1])
    assert max(len(line) for line in bars) <= 100
    for name in ("epoch 1", "epoch 2", "Validation", "Testing"):
        assert any("6/6" in line for line in bars if line.startswith(name)), bars


def test_lines_align_and_break_between_metrics(tmp_path, monkeypatch):
    def log(trainer, model, *_):
        metrics = {"train/a": 1.0, "train/b": 0.5 + model.current_epoch, "train/c": 0.25}
        model.log_dict(metrics, on_step=False, on_epoch=True)

    monkeypatch.setenv("COLUMNS", "50")
    with redirect_stdout(Terminal()) as screen:
        callback = LambdaCallback(on_train_batch_end=log)
        fit(tmp_path, callback, max_epochs=10, limit_val_batches=0)
    ends = [line.rpartition("\r")[2] for line in screen.getvalue().split("\n")]
    lines = [line for line in ends if "train/" in line]
    first, rest = lines[::2], lines[1::2]
    assert len(first) == len(rest) == 10
    assert max(map(len, lines)) <= 50
    assert len({line.index("train/b") for line in first}) == 1
    assert {len(line) - len(line.lstrip()) for line in rest} == {len("epoch 10/10  ")}


def test_draws_by_the_clock_not_by_the_step(tmp_path, monkeypatch):
    """100 steps within one interval draw after the first, as the time has come, after the last, and
    at the end.
    """
    drawn = []

    class Counted(ProgressBar):
        def get_metrics(self, trainer, pl_module):
            drawn.append(trainer.fit_loop.batch_idx)
            return super().get_metrics(trainer, pl_module)

    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWS", 1000.0)
    with redirect_stdout(Terminal()):
        fit(tmp_path, bar=Counted, samples=400, limit_val_batches=0)
    assert drawn == [0, 99, 99]
