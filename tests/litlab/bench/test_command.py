"""The command ``bench`` with real trials of a tiny experiment."""

import json
import signal
import time
from pathlib import Path

import psutil
import pytest
import yaml

from litlab.bench.changes import Change
from litlab.bench.clock import LEAST_ROUNDS, ROUNDS
from tests.litlab.conftest import CONFIGS
from tests.processes import Python

# Per image: convolution of 16 x 8 x 8 outputs from 48 inputs, forward and for its weights; last layer, twice backward.
FLOPS = 2 * (2 * 16 * 8 * 8 * 48) + 3 * (2 * 16 * 10)
TROUBLE = "tests.litlab.bench.trouble"


@pytest.fixture
def arguments(images) -> list[str]:
    return [
        "--config", str(CONFIGS / "images.yaml"), "--data.dataset=folder", f"--data.path={images}",
        "--trainer.accelerator=cpu",
    ]  # fmt: skip


@pytest.fixture
def bench(run, arguments, fork_server, monkeypatch):
    """Runs the command with trials of a fifth of a second."""
    monkeypatch.setattr("litlab.bench.runner.MOST_SECONDS", 0.2)
    return lambda *more: run("bench", *arguments, *more)


def overlay(folder: Path, name: str) -> Path:
    """An overlay that adds one of the callbacks of `trouble`."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"callbacks+": {"class_path": f"{TROUBLE}.{name}"}}}))
    return file


def test_sides_are_measured_and_failures_are_results(bench, tmp_path, monkeypatch):
    monkeypatch.setattr("litlab.bench.bench.TURNS_OF_COMPARE", 1)
    too_large = overlay(tmp_path, "TooLarge")
    in_backward = tmp_path / "in_backward.yaml"
    in_backward.write_text("nan_guard: null\ntrainer: {callbacks+: {class_path: OptimizerInBackward}}\n")
    done = bench(f"--compare=baseline,channels_last,{in_backward},num_workers=-1,{too_large}")
    assert done.code == 0, done.err
    assert "data.num_workers: -1 is not valid" in done.out
    assert "out of memory: try half" in " ".join(done.out.split())
    assert {path.name for path in (tmp_path / "lightning_logs").iterdir()} == {"bench"}
    kept = json.loads((tmp_path / "lightning_logs/bench/images/compare.json").read_text())
    sides = ["baseline", "channels_last", str(in_backward), "num_workers=-1", str(too_large)]
    assert [trial["change"] for trial in kept["trials"]] == sides
    base, last, inside, *failed = (trial["measured"] for trial in kept["trials"])
    assert failed == [None, None]
    assert (base["samples_per_step"], last["samples_per_step"]) == (40, 40)
    assert (base["epoch_steps"], base["epochs"]) == (4, 2)
    for measured in (base, last, inside):
        assert LEAST_ROUNDS <= len(measured["step_seconds"]) <= ROUNDS  # fewer on a busy machine
        assert min(measured["step_seconds"]) > 0
    assert kept["flops_per_sample"] == FLOPS
    assert kept["not_counted"] == []
    assert kept["peak_flops"]["32-true"] > 1e9
    assert list(kept["ratios"]) == ["channels_last", str(in_backward)]
    assert kept["hardware"]["device"] == "cpu"
    assert kept["current"]["fused"] == "null"  # SGD has it
    assert {"torch", "lightning"} <= kept["versions"].keys()


def test_the_overlay_holds_what_pays(bench, run, arguments, tmp_path, monkeypatch):
    """A step takes 400 ms less with one change, and a sleep can be measured on any machine."""
    tried = [Change("channels_last", "true"), Change("num_workers", "-1"), Change("precision", "bf16-mixed")]
    monkeypatch.setattr("litlab.bench.bench.candidates", lambda machine: tried)
    monkeypatch.setattr("litlab.bench.bench.hopeless", lambda machine, change: "no" if change is tried[2] else "")
    monkeypatch.setattr("litlab.bench.bench.TURNS", 1)
    slow = overlay(tmp_path, "SlowUnlessChannelsLast")
    done = bench("--config", slow, "--trainer.max_epochs=1000")  # long enough to pay back any start-up
    assert done.code == 0, done.err
    assert "bf16 *" in done.out
    assert "not tried: no" in done.out
    file = tmp_path / "lightning_logs/bench/images/bench.yaml"
    assert file.is_file(), done.out
    text = file.read_text()
    assert yaml.safe_load(text) == {"channels_last": True}
    assert "# channels_last: " in text
    assert f"# {'':1} python -m auks fit" in text
    shown = run("fit", *arguments, "--config", file, "--print_config")
    assert yaml.safe_load(shown.out)["channels_last"] is True


def test_an_experiment_that_fails_says_what_fit_says(bench, run, arguments, tmp_path):
    fit = run("fit", *arguments, "--model.width=2")
    done = bench("--model.width=2")
    assert (done.code, done.out, done.err) == (2, "", f"error: {fit.err.partition('error: ')[2]}")
    bug = bench("--config", overlay(tmp_path, "Bug"))
    assert bug.code == 1
    assert bug.err.endswith("ZeroDivisionError: a bug\n")
    assert not list(tmp_path.glob("lightning_logs/*"))


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--resume=last"], "--resume: bench looks at a fit from its start; leave --resume out"),
        (["--minutes=0"], "bench: argument --minutes: '0' is not a number of minutes above 0"),
        (["--compare=compile"], "--compare: compile is one side; name two or more, such as baseline,compile"),
        (["--compare=eager,eager"], "--compare: eager is named twice; remove one of them"),
        (["--allow=batchsize"], "--allow: there is no setting 'batchsize'; did you mean 'batch_size'?"),
    ],
)
def test_bad_input_is_one_line(run, arguments, more, line):
    done = run("bench", *arguments, *more)
    assert (done.code, done.out, done.err) == (2, "", f"error: {line}\n")


def test_without_time_for_the_first_trial(bench, tmp_path):
    done = bench("--minutes=0.001", "--config", overlay(tmp_path, "Stuck"))
    assert done.code == 2
    assert done.err == "error: --minutes: baseline was not done within 1 s; give more time\n"


def test_ctrl_c_ends_all_processes_and_shows_what_there_is(arguments, tmp_path):
    earlier = tmp_path / "lightning_logs/bench/images/bench.yaml"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("channels_last: true")
    command = Python("-m", "tests.litlab.sweep.command", "bench", *arguments, "--minutes=1", cwd=tmp_path)
    deadline = time.monotonic() + 200
    while "baseline: " not in command.printed()[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    processes = psutil.Process(command.pid).children(recursive=True)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate()
    assert command.returncode == 130, err
    assert "SIGINT: stopped." in err
    assert "samples/s ┃" in out
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
    kept = json.loads((tmp_path / "lightning_logs/bench/images/bench.json").read_text())
    assert kept["trials"][0]["measured"]
    assert earlier.read_text() == "channels_last: true"
