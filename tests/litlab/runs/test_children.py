"""Commands in processes of their own."""

import signal

import pytest

from litlab.runs.children import explain_failure, run_child


@pytest.mark.parametrize(
    ("code", "printed", "reason"),
    [
        (2, "loading\nerror: data.path: it is not there\nbye\n", "data.path: it is not there"),
        (1, "Traceback\nZeroDivisionError: a bug\n", "exit code 1: ZeroDivisionError: a bug"),
        (-9, "error: of before\n", "killed by SIGKILL: perhaps there was too little memory"),
    ],
)
def test_a_failure_is_one_line(tmp_path, code, printed, reason):
    log = tmp_path / "log"
    log.write_text(printed)
    assert explain_failure(code, log) == reason


def test_a_child_prints_to_its_log(tmp_path):
    log = tmp_path / "log"
    assert run_child("json.tool", str(tmp_path / "none.json"), log=log) == 2
    assert "none.json" in log.read_text()


def test_a_child_that_a_signal_has_stopped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stop.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGUSR1)\n")
    assert run_child("stop") == 128 + signal.SIGUSR1
