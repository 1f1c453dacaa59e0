import io
import math
import os
import re
from types import SimpleNamespace

import pytest
import rich

from litlab.callbacks import ProgressBar, progress
from litlab.callbacks import _bar as module
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


@pytest.fixture(autouse=True)
def own_console(monkeypatch):
    monkeypatch.setattr(rich, "_console", None)  # rich looks at the output once, and pytest swaps it for each test


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


def test_draws_by_the_clock_not_by_the_step(tmp_path, monkeypatch):
    """On a terminal, 100 steps within one interval draw twice: after the first, as the time has come, and the last."""
    draws = []
    console = rich.console.Console(force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115
    monkeypatch.setattr(rich, "_console", console)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_DRAWS", 1000.0)
    bar = ProgressBar()

    draw = module.Bar.draw
    monkeypatch.setattr(module.Bar, "draw", lambda *args: (draws.append(args), draw(*args)))
    trainer = make_trainer(tmp_path, enable_progress_bar=True, callbacks=[bar], limit_val_batches=0)
    trainer.fit(Tiny(), TinyData(samples=100, batch_size=1))
    assert len(draws) == 2  # the first, and the last batch
    console.file.close()


def test_terminal_shows_a_bar_and_keeps_the_lines(tmp_path, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(rich, "_console", rich.console.Console(force_terminal=True, file=out, width=100))
    trainer = make_trainer(tmp_path, max_epochs=2, enable_progress_bar=True, callbacks=[ProgressBar()])
    model = Tiny()
    trainer.fit(model, TinyData())
    fitted = out.getvalue()
    assert "━" in fitted
    assert "validate" in fitted
    assert re.findall(r"epoch ([12])/2  train/loss [\d.]+  val/acc", fitted) == ["1", "2"]
    trainer.test(model, TinyData(), verbose=False)
    tested = out.getvalue()[len(fitted) :]
    assert re.search(r"test\b.*━", tested)
    for text in (fitted, tested):
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


def test_bar_is_gone_when_training_fails(tmp_path, monkeypatch):
    class Failing(Tiny):
        def training_step(self, batch, batch_idx):
            raise ValueError("here")

    out = io.StringIO()
    monkeypatch.setattr(rich, "_console", rich.console.Console(force_terminal=True, file=out, width=100))
    bar = ProgressBar()
    trainer = make_trainer(tmp_path, enable_progress_bar=True, callbacks=[bar])
    with pytest.raises(ValueError, match="here"):
        trainer.fit(Failing(), TinyData())
    assert not bar._bar.is_open
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().rindex("\x1b[?25l")


def drawn(out: io.StringIO) -> list[str]:
    """Every state of the bar that was on the screen."""
    return [line.strip() for line in re.split(r"[\r\n]|\x1b\[[\d;?]*[A-Za-z]", out.getvalue()) if line.strip()]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_bars_end_full_and_show_loss_and_time_left(tmp_path, monkeypatch, width):
    out = io.StringIO()
    console = rich.console.Console(force_terminal=True, file=out, width=width, color_system=None)
    monkeypatch.setattr(rich, "_console", console)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_DRAWS", 0.0)
    trainer = make_trainer(tmp_path, max_epochs=2, enable_progress_bar=True, callbacks=[ProgressBar()])
    model = Tiny()
    trainer.fit(model, TinyData(samples=24))
    trainer.test(model, TinyData(samples=24), verbose=False)
    bars = [line for line in drawn(out) if re.match(r"(epoch \d/2|validate|test) ", line) and "train/loss" not in line]
    training = [line for line in bars if line.startswith("epoch")]
    assert re.search(r"loss \d\.\d+, 0:00:0\d left$", training[-2]), training
    assert "…" not in "".join(bars)
    if width > 40:
        counts = [re.search(r"(\d+)/6", line)[1] for line in training if "1/2" in line[:10]]
        assert counts == sorted(counts)  # back from the validation it is where it was
        for name in ("epoch 1/2", "epoch 2/2", "validate", "test"):
            assert "6/6" in [line for line in bars if line.startswith(name)][-1], bars


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
