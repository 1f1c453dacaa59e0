"""The command ``bench`` with real trials of a tiny experiment."""

import json
import signal
import time
from pathlib import Path

import psutil
import pytest
import yaml

from litlab.commands.bench.settings import Change
from tests.litlab.conftest import CONFIGS
from tests.processes import Python

TROUBLE = "tests.litlab.commands.bench.trouble"
RECORD = Path("lightning_logs/bench/images/bench.json")
OVERLAY = RECORD.with_suffix(".yaml")


@pytest.fixture
def arguments(images) -> list[str]:
    return [
        "--config", str(CONFIGS / "images.yaml"), "--data.dataset=folder", f"--data.path={images}",
        "--trainer.accelerator=cpu",
    ]  # fmt: skip


@pytest.fixture
def bench(run, arguments, children):
    return lambda *more: run("bench", *arguments, *more)


def overlay(folder: Path, name: str) -> Path:
    """An overlay that adds one of the callbacks of `trouble`."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"callbacks+": {"class_path": f"{TROUBLE}.{name}"}}}))
    return file


def test_sides_are_measured_and_failures_are_results(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("litlab.commands.bench.bench.TURNS", 1)
    too_large = overlay(tmp_path, "TooLarge")
    ours = tmp_path / "ours.yaml"
    ours.write_text("nan_guard: null\ntrainer: {callbacks+: [{class_path: OptimizerInBackward}]}\nswa: {}\n")
    done = bench(f"--compare=baseline,channels_last,{ours},num_workers=-1,{too_large}")
    assert done.code == 0, done.err
    assert "data.num_workers: -1 is not valid" in done.out
    assert "out of memory: try half" in " ".join(done.out.split())
    assert {path.name for path in (tmp_path / "lightning_logs").iterdir()} == {"bench"}
    kept = json.loads(RECORD.read_text())
    measured = {name: trial for name, trial in kept["trials"].items() if not trial["reason"]}
    assert list(measured) == ["baseline", "channels_last=true", str(ours)]
    assert all(len(trial["rates"]) == 5 and min(trial["rates"]) > 0 for trial in measured.values())
    assert kept["run_samples"] == 2 * 4 * 40
    assert kept["current"]["fused"] is None  # SGD has it
    assert not OVERLAY.exists()


def test_the_overlay_holds_what_pays(bench, run, arguments, tmp_path, monkeypatch):
    """A step takes 400 ms less with one change, and a sleep can be measured on any machine."""
    tried = [Change("channels_last", "true"), Change("num_workers", "-1")]
    monkeypatch.setattr("litlab.commands.bench.bench.list_candidates", lambda facts, allowed: tried)
    slow = overlay(tmp_path, "SlowUnlessChannelsLast")
    done = bench("--config", slow, "--trainer.max_epochs=1000")  # long enough to pay back any start-up
    assert done.code == 0, done.err
    text = OVERLAY.read_text()
    assert yaml.safe_load(text) == {"channels_last": True}
    assert "# python -m auks fit" in text
    shown = run("fit", *arguments, "--config", OVERLAY, "--print_config")
    assert yaml.safe_load(shown.out)["channels_last"] is True


def test_a_first_trial_that_fails_or_takes_too_long(bench, run, arguments, tmp_path):
    fit = run("fit", *arguments, "--model.width=2")
    done = bench("--model.width=2")
    assert (done.code, done.out, done.err) == (2, "", f"error: {fit.err.partition('error: ')[2]}")
    done = bench("--minutes=0.05", "--config", overlay(tmp_path, "Stuck"))
    assert (done.code, done.err) == (2, "error: --minutes: not done within 3 s; give more time\n")
    assert not list(tmp_path.glob("lightning_logs/bench/*"))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--resume=last", "bench: it doesn't go together with --resume, --ckpt_path, "),
        ("--minutes=0", "bench: argument --minutes: '0' is not a number of minutes above 0"),
        ("--compare=compile", "--compare: compile is one side; name two or more, such as baseline,compile"),
    ],
)
def test_bad_input_is_one_line(run, arguments, more, line):
    done = run("bench", *arguments, more)
    assert (done.code, done.out, done.err.partition(line)[0]) == (2, "", "error: ")


def test_ctrl_c_ends_the_trial_and_shows_what_there_is(arguments, tmp_path):
    earlier = tmp_path / OVERLAY
    earlier.parent.mkdir(parents=True)
    earlier.write_text("channels_last: true")
    flags = ["--minutes=5", "--compare=baseline,threads=1,threads=2"]
    command = Python("-m", "auks", "bench", *arguments, *flags, cwd=tmp_path)
    deadline = time.monotonic() + 200
    while "baseline: " not in command.printed()[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    processes = psutil.Process(command.pid).children(recursive=True)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate()
    assert command.returncode == 130, err
    assert "SIGINT: stopped" in err
    assert "quartiles" in out
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
    assert json.loads((tmp_path / RECORD).read_text())["trials"]["baseline"]["rates"]
    assert earlier.read_text() == "channels_last: true"
