import fcntl
import io
import math
import os
import re
import struct
import termios
from contextlib import contextmanager, redirect_stdout
from types import SimpleNamespace

import pytest
from lightning.pytorch.callbacks import Timer

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


def test_disabled_is_silent(tmp_path, capsys):
    bar = ProgressBar()
    bar.disable()
    make_trainer(tmp_path, enable_progress_bar=True, callbacks=[bar]).fit(Tiny(), TinyData())
    assert capsys.readouterr().out == ""


def fit_and_test(folder, bar, **options):
    """Two epochs and a test on a terminal; return what was on it after the fit, and all of it."""
    trainer = make_trainer(folder, max_epochs=2, enable_progress_bar=True, callbacks=[bar])
    model, data = Tiny(), TinyData(samples=24)
    with terminal(**options) as screen:
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

    trainer = make_trainer(tmp_path, enable_progress_bar=True, callbacks=[Counted()], limit_val_batches=0)
    with terminal():
        trainer.fit(Tiny(), TinyData(samples=100, batch_size=1))
    assert metrics == [0, 99, 99]  # the last one at the end of the epoch


def test_terminal_shows_a_bar_and_keeps_the_lines(tmp_path):
    fitted, screen = fit_and_test(tmp_path, ProgressBar())
    assert "█" in fitted
    assert "Validation" in fitted
    lines = [line for line in screen.states() if "train/loss" in line]
    assert [re.match(r"epoch ([12])/2  train/loss [\d.]+  val/acc", line)[1] for line in lines] == ["1", "2"]
    assert fitted.endswith("\r")  # the bar of the epochs is gone
    tested = screen.getvalue()[len(fitted) :]
    assert re.search(r"Testing.*█", tested)
    assert tested.endswith("\n")


def test_bar_is_gone_when_training_fails(tmp_path):
    class Failing(Tiny):
        def training_step(self, batch, batch_idx):
            raise ValueError("here")

    bar = ProgressBar()
    trainer = make_trainer(tmp_path, enable_progress_bar=True, callbacks=[bar])
    with terminal() as screen, pytest.raises(ValueError, match="here"):
        trainer.fit(Failing(), TinyData())
    assert bar.train_progress_bar.disable  # closed
    assert screen.getvalue().endswith("\r")


@pytest.mark.parametrize("width", [60, 100])
def test_bars_end_full_and_show_loss_and_time_left(tmp_path, monkeypatch, width):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWS", 0.0)
    _, screen = fit_and_test(tmp_path, ProgressBar(), width=width)
    bars = [line for line in screen.states() if re.match(r"(epoch \d/2|Validation.*|Testing.*):.*\|", line)]
    training = [line for line in bars if line.startswith("epoch")]
    assert re.search(r"loss=\d\.\d+, left=0:00:0\d$", training[-1]), training
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


@pytest.mark.parametrize(
    ("limits", "done", "left"),
    [
        ({"max_epochs": 10, "max_steps": -1}, (1, 49), 17.0),  # 8.5 epochs
        ({"max_epochs": 10, "max_steps": 200}, (1, 49), 1.0),  # the steps end first
        ({"max_epochs": -1, "max_steps": 400}, (1, 49), 5.0),
        ({"max_epochs": -1, "max_steps": -1}, (1, 49), math.inf),
        ({"max_epochs": None, "max_steps": -1}, (1, 49), math.inf),
    ],
)
def test_time_left_is_that_of_the_whole_run(monkeypatch, limits, done, left):
    """A run that is resumed in the middle of epoch 1 and does one more epoch, 100 steps, in 2 seconds."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    trainer = SimpleNamespace(num_training_batches=100, callbacks=[], current_epoch=0, global_step=50, **limits)
    bar = ProgressBar()
    bar._pace = 0.0, progress._share_done(trainer, 49)
    now[0] = 2.0
    trainer.current_epoch, trainer.global_step = done[0], 150
    assert bar._run_left(trainer, done[1]) == pytest.approx(left)


def test_time_left_ends_with_max_time(monkeypatch):
    monkeypatch.setattr(Timer, "time_remaining", lambda self: 3.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: 2.0)
    trainer = SimpleNamespace(
        num_training_batches=100,
        callbacks=[Timer("00:00:00:05")],
        current_epoch=1,
        global_step=100,
        max_epochs=10,
        max_steps=-1,
    )
    bar = ProgressBar()
    bar._pace = 0.0, 0.0
    assert bar._run_left(trainer, 0) == 3.0
