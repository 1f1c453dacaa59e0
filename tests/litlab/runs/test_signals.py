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

AT_STEP_7 = {"in": "step", "step": 7, "batch": 1}


def last_step(folder) -> int:
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["global_step"]


@pytest.fixture
def tiny(signals, tmp_path, capsys):
    """Runs a plan in this process; returns its exit code and what it printed."""
    caught = (signal.SIGTERM, signal.SIGINT)
    before = [*map(signal.getsignal, caught)]

    def tiny_run(folder: str, **plan):
        code = run({"folder": str(tmp_path / folder), **plan})
        assert [*map(signal.getsignal, caught)] == before
        return code, capsys.readouterr().out

    return tiny_run


def test_a_run_under_nohup_outlives_its_terminal(tiny, tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code, _ = tiny("nohup", signal=AT_STEP_7 | {"names": ["SIGHUP"]})
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert code == 0
    assert last_step(tmp_path / "nohup") == 18


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
    code, printed = tiny("twice", signal=AT_STEP_7 | {"names": ["SIGINT", "SIGINT"]})
    assert (code, "Interrupted" in printed) == (130, False)
    assert last_step(tmp_path / "twice") == 6


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
  signal: {in: step, step: 7, batch: 1, rank: 1, names: [SIGTERM]}
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
    saved = [last_step(tmp_path / name) for name in ("step", "validation", "nan")]
    assert saved == [int(ends[0][-1]), 2, 6]
    nan = r"rank 0: error: nan_guard: the loss is \d\S* and the norm of the gradient nan at step 8"
    assert re.search(nan, printed)
    assert "rank 1: error: nan_guard: the loss is nan and" in printed
