import fcntl
import io
import os
import re
import struct
import termios
from contextlib import contextmanager, redirect_stdout

import pytest

from litlab.callbacks import ProgressBar, progress
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Screen(io.StringIO):
    """A terminal of this width, and all that was ever written to it."""

    encoding = "utf-8"

    def __init__(self, width):
        super().__init__()
        self.ends = os.openpty()
        fcntl.ioctl(self.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))

    def fileno(self):
        return self.ends[1]

    def isatty(self):
        return True

    def states(self) -> list[str]:
        """Return every line that was on the screen."""
        return [line.strip() for line in re.split(r"[\r\n]|\x1b\[[\d;?]*[A-Za-z]", self.getvalue()) if line.strip()]


@contextmanager
def terminal(width=100):
    """Let the output go to a terminal. Not a fixture: pytest has its own stdout for each phase of a test."""
    screen = Screen(width)
    try:
        with redirect_stdout(screen):
            yield screen
    finally:
        for end in screen.ends:
            os.close(end)


def test_one_plain_line_an_epoch(tmp_path, capsys):
    trainer = make_trainer(tmp_path, max_epochs=2, enable_progress_bar=True, callbacks=[ProgressBar()])
    trainer.fit(Tiny(), TinyData())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(rf"epoch {number}/2  train/loss [\d.]+  val/acc [\d.e-]+  [\d.]+ s", line), line
    metrics = trainer.callback_metrics
    assert f"train/loss {metrics['train/loss']:.4g}  val/acc {metrics['val/acc']:.4g}" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_each_line_has_its_own_epochs_metrics(tmp_path, capsys):
    class Counting(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("train/epoch", float(self.current_epoch), on_step=False, on_epoch=True)
            self.log("time/hidden", 1.0)
            return super().training_step(batch, batch_idx)

    trainer = make_trainer(tmp_path, max_epochs=3, enable_progress_bar=True, callbacks=[ProgressBar()])
    trainer.fit(Counting(), TinyData())
    out = capsys.readouterr().out
    assert re.findall(r"train/epoch (\d)", out) == ["0", "1", "2"]
    assert "hidden" not in out


def fit_and_test(folder, **options):
    """Two epochs and a test on a terminal; return what was on it after the fit, and all of it."""
    model, data = Tiny(), TinyData(samples=24)
    with terminal(**options) as screen:
        trainer = make_trainer(folder, max_epochs=2, enable_progress_bar=True, callbacks=[ProgressBar()])
        trainer.fit(model, data)
        fitted = screen.getvalue()
        trainer.test(model, data, verbose=False)
    return fitted, screen


def test_draws_by_the_clock_not_by_the_step(tmp_path, monkeypatch):
    """100 steps within one interval draw twice: after the first, as the time has come, and after the last."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWS", 1000.0)
    metrics = []

    class Counted(ProgressBar):
        def get_metrics(self, trainer, pl_module):
            metrics.append(trainer.fit_loop.batch_idx)
            return super().get_metrics(trainer, pl_module)

    with terminal():
        trainer = make_trainer(tmp_path, enable_progress_bar=True, callbacks=[Counted()], limit_val_batches=0)
        trainer.fit(Tiny(), TinyData(samples=100, batch_size=1))
    assert metrics == [0, 99, 99]  # the last one at the end of the epoch


def test_terminal_shows_a_bar_and_keeps_the_lines(tmp_path):
    fitted, screen = fit_and_test(tmp_path)
    assert "█" in fitted
    assert "Validation" in fitted
    lines = [line for line in screen.states() if "train/loss" in line]
    assert [re.match(r"epoch ([12])/2  train/loss [\d.]+  val/acc", line)[1] for line in lines] == ["1", "2"]
    tested = screen.getvalue()[len(fitted) :]
    assert re.search(r"Testing.*█", tested)
    assert tested.endswith("\n")


def test_an_error_begins_a_line_of_its_own(tmp_path):
    class Failing(Tiny):
        def training_step(self, batch, batch_idx):
            raise ValueError("here")

    with terminal() as screen:
        trainer = make_trainer(tmp_path, enable_progress_bar=True, callbacks=[ProgressBar()])
        with pytest.raises(ValueError, match="here"):
            trainer.fit(Failing(), TinyData())
    assert screen.getvalue().endswith("\n")


@pytest.mark.parametrize("width", [60, 100])
def test_bars_end_full_and_show_the_loss(tmp_path, monkeypatch, width):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWS", 0.0)
    _, screen = fit_and_test(tmp_path, width=width)
    bars = [line for line in screen.states() if re.match(r"(epoch \d/2|Validation.*|Testing.*):.*\|", line)]
    training = [line for line in bars if line.startswith("epoch")]
    assert re.search(r"loss=\d\.\d+", training[-1]), training
    assert width - 15 < max(len(line) for line in bars) <= width
    counts = [int(re.search(r"(\d+)/6", line)[1]) for line in training if "1/2" in line[:10]]
    assert counts == sorted(counts)  # back from the validation it is where it was
    for name in ("epoch 1/2", "epoch 2/2", "Validation", "Testing"):
        assert "6/6" in [line for line in bars if line.startswith(name)][-1], bars


def test_what_a_model_logs_for_the_bar_is_in_it(tmp_path):
    class Logs(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("speed", 7.0, prog_bar=True)
            return super().training_step(batch, batch_idx)

    with terminal() as screen:
        make_trainer(tmp_path, enable_progress_bar=True, callbacks=[ProgressBar()]).fit(Logs(), TinyData())
    assert "speed=7.0" in screen.getvalue()
