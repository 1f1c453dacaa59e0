"""What runs have logged, and fits in processes of their own."""

import signal

import pytest
from scipy import stats

from litlab.runs import results
from litlab.runs.children import explain_failure, run_child


def test_what_was_monitored_says_which_value_is_better():
    assert (
        results.find_direction("test/loss", [{}, {"best": {"monitor": "val/loss", "mode": "max"}}])
        == 1
    )


BEST = {"monitor": "val/f1", "mode": "max", "value": 0.9, "checkpoint": "best.ckpt"}
VAL = {"val/f1": 0.9, "val/loss": 1.5}


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (
            {"best": BEST, "val": VAL, "test": {"test/f1": 0.8}, "test_checkpoint": "best.ckpt"},
            VAL | {"test/f1": 0.8},
        ),
        (
            {"best": BEST, "val": VAL, "test": {"test/f1": 0.7}, "test_checkpoint": "last.ckpt"},
            {"test/f1": 0.7},
        ),
        ({"best": BEST, "val": {"val/f1": 0.6}, "val_checkpoint": "last.ckpt"}, {"val/f1": 0.9}),
        ({"best": BEST | {"monitor": "train/loss"}, "val": VAL}, VAL | {"train/loss": 0.9}),
        ({"val": VAL, "val_checkpoint": "last.ckpt"}, VAL),
    ],
)
def test_metrics_are_of_one_checkpoint(metrics, expected):
    assert results.pick_metrics(metrics) == expected


def test_the_interval_is_that_of_students_t():
    values = [0.887, 0.8906, 0.8857]
    spread, error = results.measure_spread(values), stats.sem(values)
    assert spread.deviation == pytest.approx(3**0.5 * error)
    assert spread.interval == pytest.approx(stats.t.interval(0.95, 2, spread.mean, error))
    assert results.format_spread(spread) == ["0.8878", "0.0025", "0.8815 to 0.8941", "3"]
    assert results.format_spread(results.measure_spread([0.5])) == ["0.5000", "-", "-", "1"]
    assert results.format_plus_minus(0.88712, 0.00213) == "0.8871 ± 0.0021"


def test_a_child_that_a_signal_has_stopped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stop.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGUSR1)\n")
    assert run_child("stop") == 128 + signal.SIGUSR1


def test_a_failure_is_one_line(tmp_path):
    log = tmp_path / "log"
    assert run_child("json.tool", "--none.json", log=log) == 2
    assert explain_failure(2, log).startswith("exit code 2: ")
    assert "--none.json" in explain_failure(2, log)
    log.write_text("loading\nerror: data.path: it is not there\nbye\n")
    assert explain_failure(2, log) == "data.path: it is not there"
    assert explain_failure(-9, log).startswith("killed by SIGKILL")
