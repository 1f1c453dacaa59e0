"""Whole sweeps of real fits, through the command line."""

import signal
import sqlite3
import statistics
import time

import pytest
import yaml
from optuna.trial import TrialState

from litlab.runs.folder import RunFolder, read_json
from tests.processes import Python

SECONDS = 240
TROUBLE = "tests.litlab.commands.sweep.trouble"
WORKER = """
import runpy
from litlab.runs import children
from tests.processes import Child

children.Popen = Child  # which starts at once
runpy.run_module("auks", run_name="__main__")
"""


def test_to_the_end_and_further(sweep, children):
    """Trials are runs; more of them with the same settings only; table, page and a best.yaml that
    trains.

    Folders are made of numbers: strings of a hostile database lead nowhere.
    """
    sweep.start("--trials", 1).check()
    outcome = sweep.start(seeds=2)
    assert outcome.code == 2
    assert "tiny.yaml: seeds: the trials of the sweep tiny were run with" in outcome.err
    del sweep.content["seeds"]
    folder, victim = sweep.kept, sweep.folder / "victim"
    with sqlite3.connect(folder / "study.db") as database:
        path = "'\"../../../victim\"' WHERE key = 'folder'"
        database.execute(f"UPDATE trial_user_attributes SET value_json = {path}")
    victim.mkdir()
    outcome = sweep.start("--trials", 2).check()
    assert outcome.out.count(": complete: val/mse") == 1
    assert not list(victim.iterdir())
    runs = sorted(folder.glob("*/seed_0/version_*"))
    assert [path.parts[-3] for path in runs] == ["trial_0000", "trial_0001"]
    assert [RunFolder(path).read_state()["status"] for path in runs] == ["finished"] * 2

    best = folder / "best.yaml"
    assert set(yaml.safe_load(best.read_text())) == {"model.hidden_size", "model.optimizer.lr"}
    settings = sweep.folder / "settings.yaml"
    settings.write_text(yaml.safe_dump(sweep.content["settings"]))
    files = [f"--config={file}" for file in (sweep.content["base"], settings, best)]
    sweep.run("fit", *files).check()

    page = sweep.start("--report").out.rpartition("Report: ")[2].splitlines()[0]
    text = (sweep.folder / page).read_text()
    assert len(text) < 300_000
    assert (folder / "report" / "plotly.min.js").is_file()
    titles = ["val/mse by trial", "val/mse over each setting", "at each validation"]
    for title in (*titles, '<th scope="col" class="number">model.<wbr>hidden_size</th>'):
        assert title in text


@pytest.mark.parametrize("name", ["best.yaml", "report/report.html", "report/plotly.min.js"])
def test_what_the_user_keeps_in_its_folder_is_not_replaced(sweep, name):
    file = sweep.kept / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    for flags in ([], ["--report"]):
        outcome = sweep.start(*flags)
        assert (outcome.code, f"{name}: something else is there" in outcome.err) == (2, True)
    assert file.read_text() == "mine"
    assert not list(sweep.kept.glob("trial_*")), "it is refused before the first trial"


def test_seeds_workers_and_bad_ends(sweep, children):
    """Crashes are outcomes of trials; what is worse is pruned; the mean stands beside the
    deviation.
    """
    trouble = {
        kind: [{"class_path": f"{TROUBLE}.Trouble", "init_args": {"kind": kind}}]
        for kind in ("killed", "none", "nan", "worse")
    }
    del sweep.content["settings"]["trainer.callbacks"]
    outcome = sweep.start(
        space={"trainer.callbacks": {"choices": trouble}},
        sampler="grid",
        pruner={"name": "median", "n_startup_trials": 1},
        trials=None,
        seeds=2,
    ).check()
    trials = {trial.params["trainer.callbacks"]: trial for trial in sweep.trials()}
    assert list(trials) == list(trouble)
    best = trials["none"]
    files = (sweep.kept / best.user_attrs["folder"]).glob("*/validations.json")
    lowest = [min(read_json(file).values()) for file in files]
    assert best.value == pytest.approx(statistics.mean(lowest))
    shown = f"{statistics.mean(lowest):.4f} ± {statistics.stdev(lowest):.4f}"
    for text in (outcome.out, (sweep.kept / "best.yaml").read_text()):
        assert shown in text
    rows = [row.split()[:2] for row in outcome.out.splitlines() if row.startswith(tuple("0123"))]
    # The best first
    assert rows == [["1", "complete"], ["0", "fail"], ["2", "fail"], ["3", "pruned"]]
    assert "SIGKILL" in trials["killed"].user_attrs["reason"]
    assert trials["nan"].state == TrialState.FAIL
    assert trials["worse"].state == TrialState.PRUNED
    assert not (sweep.kept / "trial_0003" / "seed_1").exists()


def test_killed_sweep_continues(sweep, children, monkeypatch):
    """With two workers: exactly the budget, and what was begun goes on from its last checkpoint."""
    gate = sweep.folder / "gate"
    held = {"class_path": f"{TROUBLE}.Held", "init_args": {"file": str(gate)}}
    sweep.content["settings"]["trainer.callbacks"] = [held]
    file = sweep.write()
    worker = sweep.folder / "worker.py"
    worker.write_text(WORKER)
    workers = [Python(worker, "sweep", "--config", file, cwd=sweep.folder) for _ in range(2)]
    deadline = time.monotonic() + SECONDS
    while len(list(sweep.kept.glob("*/seed_0/validations.json"))) < 2:
        assert time.monotonic() < deadline, workers[0].printed()
        time.sleep(0.1)
    for worker in workers:
        worker.kill()
        assert worker.wait() == -signal.SIGKILL
    states = [RunFolder(path).read_state for path in sweep.kept.glob("*/seed_0/version_0")]
    gate.touch()
    while any(state()["status"] == "running" for state in states):
        assert time.monotonic() < deadline
        time.sleep(0.1)

    # Of workers that are silent
    monkeypatch.setattr("litlab.commands.sweep.study.GRACE_SECONDS", 1)
    sweep.run("sweep", "--config", "tiny.yaml").check()
    complete = [trial for trial in sweep.trials() if trial.state == TrialState.COMPLETE]
    assert len({trial.user_attrs["folder"] for trial in complete}) == len(complete) == 2
    assert len(list(sweep.kept.glob("*/seed_0/version_*"))) == 2
    assert all(len(trial.intermediate_values) > 0 for trial in complete)
