"""Signals that are ignored, come twice, or to one of several ranks; test_resume_matrix.py has them
at every kind of moment.
"""

import json
import os
import re
import signal
import sys

import pytest
import torch
import yaml

from tests.conftest import ROOT
from tests.litlab.runs.tiny_run import run
from tests.processes import Python


def state(folder) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.fixture
def tiny(signals, tmp_path, capsys):
    """Runs a plan in this process; returns its exit code and what it printed."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def tiny_run(folder: str, **plan):
        code = run({"folder": str(tmp_path / folder), **plan})
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        return code, capsys.readouterr().out

    return tiny_run


def test_a_run_under_nohup_outlives_its_terminal(tiny, tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code, _ = tiny("nohup", signal={"in": "step", "step": 7, "names": ["SIGHUP"]})
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert code == 0
    assert state(tmp_path / "nohup")["global_step"] == 18


def test_children_of_a_running_fit_can_be_terminated(tiny, monkeypatch):
    """A forked process would inherit handlers that do nothing, and the parent's ear."""
    from tests.litlab.runs import tiny_run

    codes = []

    def fork(where, model, batch_idx):
        if codes:
            return
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)  # is without effect, here and in the parent
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(9)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    monkeypatch.setattr(tiny_run, "act", fork)
    code, _ = tiny("forked")
    assert codes == [-signal.SIGTERM]
    assert code == 0


def test_a_second_sigint_leaves_at_once(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "_exit", sys.exit)
    code, printed = tiny("twice", signal={"in": "step", "step": 7, "names": ["SIGINT", "SIGINT"]})
    assert code == 130
    assert "Interrupted" not in printed
    assert state(tmp_path / "twice")["global_step"] == 6


PLANS = """
- folder: validation
  seconds: 0.4  # for a batch
  signal: {in: validation, step: 2, batch: 0, rank: 1, names: [SIGTERM]}
  trainer: {devices: 2, strategy: ddp, limit_train_batches: 2}
- folder: test
  verb: test
  seconds: 0.4
  signal: {in: test, step: 0, batch: 0, rank: all, names: [SIGINT]}
  trainer: {devices: 2, strategy: ddp}
- folder: nan
  nan: {step: 8, rank: 1}
  trainer: {devices: 2, strategy: ddp}
- folder: step  # to ranks which the command has started
  seconds: 0.02
  signal: {in: step, step: 7, rank: 1, names: [SIGTERM]}
  trainer: {devices: 2, strategy: ddp}
"""


def test_ranks_of_a_command_agree_wherever_one_gets_a_signal(tmp_path):
    """Two ranks, one run after the other: signals, a NaN on one rank, and what is left on the
    disk.
    """
    plans = yaml.safe_load(PLANS)
    for plan in plans:
        plan["folder"] = str(tmp_path / plan["folder"])
    process = Python("-m", "tests.litlab.runs.tiny_run", json.dumps(plans), cwd=ROOT, merge=True)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 143, printed
    assert re.findall(r"exit (\d+)", printed) == ["143", "130", "2", "143"], printed
    end = r"(?:Interrupted|UserError) after (\d+) steps, weights finite"
    ends = [re.findall(rf"rank {rank}: {end}", printed) for rank in (0, 1)]
    assert ends[0] == ends[1], "all ranks after the same step"
    assert ends[0][:-1] == ["2", "0", "8"]
    assert 8 <= int(ends[0][-1]) < 18
    assert state(tmp_path / "step")["global_step"] == int(ends[0][-1])
    assert state(tmp_path / "validation")["global_step"] == 2
    assert re.search(
        r"rank 0: error: nan_guard: the loss is \d\S* and the norm of the gradient nan at step 8",
        printed,
    )
    assert "rank 1: error: nan_guard: the loss is nan and" in printed
    assert state(tmp_path / "nan")["global_step"] == 6
