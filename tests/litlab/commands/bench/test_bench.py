"""The command ``bench`` with real trials of a tiny experiment."""

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from litlab.commands.bench.settings import Change
from litlab.runs.folder import write_json
from tests.litlab.commands.bench.test_compare import CPU
from tests.litlab.runs.conftest import error

OVERLAY = Path("lightning_logs/bench/images/bench.yaml")


@pytest.fixture
def bench(run, small_data, children):
    return lambda *more: run("bench", *small_data["images"], "--trainer.accelerator=cpu", *more)


def overlay(folder: Path, name: str) -> Path:
    """An overlay that adds one of the callbacks of `trouble`."""
    file = folder / f"{name}.yaml"
    callback = f"tests.litlab.commands.bench.trouble.{name}"
    file.write_text(f"swa: {{}}\ntrainer.callbacks+: {{class_path: {callback}}}\n")
    return file


def test_the_overlay_holds_what_pays_and_failures_are_results(bench, tmp_path, monkeypatch):
    """A step takes 200 ms less with one change, and a sleep can be measured on any machine."""
    tried = [Change("channels_last", "true"), Change(str(overlay(tmp_path, "TooLarge")))]
    monkeypatch.setattr("litlab.commands.bench.bench.list_candidates", lambda facts, allowed: tried)
    monkeypatch.setattr("litlab.commands.bench.compare.TURNS", 2)
    slow = overlay(tmp_path, "SlowUnlessChannelsLast")
    # Long enough to pay back any start-up
    done = bench("--config", slow, "--trainer.max_epochs=1000").check()
    assert "out of memory: try half" in " ".join(done.out.split())
    text = OVERLAY.read_text()
    assert yaml.safe_load(text) == {"channels_last": True}
    assert "# python -m auks fit" in text
    assert {path.name for path in (tmp_path / "lightning_logs").iterdir()} == {"bench"}


def test_a_first_trial_that_takes_too_long(bench, tmp_path):
    done = bench("--minutes=0.002")
    assert (done.code, done.err) == (2, "error: --minutes: not done within 0 s; give more time\n")
    assert not list(tmp_path.glob("lightning_logs/bench/*"))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--resume=last", "bench: it doesn't work with --resume, --ckpt_path, "),
        ("--minutes=0", "bench: argument --minutes: '0' is not a number of minutes above 0"),
        (
            "--compare=baseline,compil",
            "--compare: compil has no value; write SETTING=VALUE, FILE.yaml, or one of",
        ),
        ("--model.depth=2", "model.depth: "),
    ],
)
def test_bad_input_is_one_line(bench, more, line):
    done = bench(more)
    assert (done.code, done.out, done.err.partition(line)[0]) == (2, "", "error: ")


@pytest.fixture
def made_up(monkeypatch) -> None:
    """Trials are not run; one is stopped by Ctrl-C, which tests/litlab/runs passes on to it."""

    def run_child(module, package, file, steps, *flags, **_):
        measured = {"trial": {"rates": [1.0] * 5}, "steps": 1, "facts": asdict(CPU)}
        write_json(Path(file), measured)
        return 130 if "--channels_last=true" in flags else 0

    monkeypatch.setattr("litlab.commands.bench.bench.run_child", run_child)
    OVERLAY.parent.mkdir(parents=True)


def test_an_overlay_of_the_user_is_kept(bench, made_up):
    OVERLAY.write_text("mine: true")
    done = bench()
    assert f"{OVERLAY}: something else is there" in error(done)
    assert done.out.count("samples/s") == 1, "refused after the trial that says what it is called"
    assert OVERLAY.read_text() == "mine: true"


def test_ctrl_c_shows_what_there_is_and_leaves_the_overlay(bench, made_up):
    OVERLAY.write_text("channels_last: true")
    done = bench("--compare=baseline,channels_last,compile")
    assert done.code == 130, done.err
    assert "SIGINT: stopped" in done.err
    assert "quartiles" in done.out
    assert OVERLAY.read_text() == "channels_last: true"
