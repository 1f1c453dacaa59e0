"""Commands in processes of their own."""

import signal

from litlab.runs.children import explain_failure, run_child


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
