"""The bar on a terminal, and a line for each epoch everywhere."""

import io
import re
from contextlib import redirect_stdout

import pytest

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


def fit(folder, model, bar=ProgressBar, samples=24, **options):
    return tiny.fit(
        folder, model, bar(), data=TinyData(samples), enable_progress_bar=True, **options
    )


def test_one_plain_line_an_epoch_with_its_own_metrics(tmp_path, capsys):
    class Counting(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("train/epoch", float(self.current_epoch), on_step=False, on_epoch=True)
            self.log("time/hidden", 1.0)
            return super().training_step(batch, batch_idx)

    fit(tmp_path, Counting(), max_epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for number, line in enumerate(lines):
        metrics = rf"train/epoch {number}.000  train/loss [\d.]+  val/acc [\d.e-]+"
        assert re.fullmatch(rf"epoch {number + 1}/2  {metrics}  [\d.]+ s", line), line


def test_bars_end_full_show_the_loss_and_keep_the_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWS", 0.0)
    with redirect_stdout(Terminal()) as screen:
        fit(tmp_path, Tiny(), max_epochs=2).test(Tiny(), TinyData(24), verbose=False)
    lines = [line for line in screen.states() if "train/loss" in line]
    for number, line in zip("12", lines, strict=True):
        assert re.match(rf"epoch {number}/2  train/loss [\d.]+  val/acc", line), line
    kinds = r"(Epoch \d|Validation.*|Testing.*):.*\|"
    bars = [line for line in screen.states() if re.match(kinds, line)]
    assert re.search(r"loss=\d\.\d+", [line for line in bars if line.startswith("Epoch")][-1])
    assert max(len(line) for line in bars) <= 100
    for name in ("Epoch 0", "Epoch 1", "Validation", "Testing"):
        assert any("6/6" in line for line in bars if line.startswith(name)), bars


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
        fit(tmp_path, Tiny(), Counted, samples=400, limit_val_batches=0)
    assert drawn == [0, 99, 99]
