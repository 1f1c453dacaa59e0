"""Signals at every kind of moment: what is saved, how the process ends, and that a resumed run ends the same."""

import json
import os
import re
import select
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from litlab.runs.folder import RunFolder, read_json
from litlab.runs.signals import StopSignals
from tests.conftest import ROOT
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.tiny_run import run
from tests.processes import Python, ranks

pytestmark = pytest.mark.filterwarnings("ignore:Checkpoint directory")  # a resumed run goes on in its folder
TWO = {"devices": 2, "strategy": "ddp"}
ONE_EPOCH = {"ema": True, "trainer": {**TWO, "limit_train_batches": 2}}


def state(folder) -> dict:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.fixture
def tiny(tmp_path, capsys):
    """Runs a plan in this process; returns its exit code and what it printed."""
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def tiny_run(folder: str, **plan):
        code = run({"folder": str(tmp_path / folder), **plan})
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        return code, capsys.readouterr().out

    yield tiny_run
    signal.signal(signal.SIGHUP, hangup)


FREQUENT = {"trainer": {"val_check_interval": 3}}
UNVALIDATED = {"validated": False, "trainer": {"limit_val_batches": 0}}
ACCUMULATED = {"ema": True, "trainer": {"accumulate_grad_batches": 2}}
# Where the signal comes; the optimizer steps that are then in last.ckpt; settings.
MOMENTS = {
    "inside an epoch": (("SIGTERM", "step", 7), 8, {"ema": True}),
    "in the first step": (("SIGINT", "step", 0), 1, {}),
    "on the last batch": (("SIGTERM", "step", 11), 12, {"ema": True}),
    "in the last step": (("SIGTERM", "step", 17), 18, {"ema": True}),
    "on the last batch, no validation": (("SIGTERM", "step", 5), 6, UNVALIDATED),
    "between accumulated batches": (("SIGHUP", "step", 4), 5, ACCUMULATED),
    "in the first batch of a validation": (("SIGINT", "validation", 6, 0), 6, {"ema": True}),
    "in the last batch of a validation": (("SIGTERM", "validation", 12, 2), 12, {"ema": True}),
    "in a validation inside an epoch": (("SIGTERM", "validation", 9, 1), 9, FREQUENT),
    "before a validation inside an epoch": (("SIGTERM", "step", 8), 9, FREQUENT),
}


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, tuple[str, list[str]]]:
    """What was printed and which checkpoints were kept, by the settings of the run."""
    return {}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stopped_run_that_is_resumed_ends_as_one_that_was_not(tiny, uninterrupted, tmp_path, moment):
    (name, where, step, *batch), steps, settings = MOMENTS[moment]
    plan = {"in": where, "step": step, "names": [name], **({"batch": batch[0]} if batch else {})}
    if (key := json.dumps(settings)) not in uninterrupted:
        code, printed = tiny("whole", **settings)
        assert code == 0
        uninterrupted[key] = printed, sorted(os.listdir(tmp_path / "whole" / "checkpoints"))
    whole, files = uninterrupted[key]
    code, first = tiny("cut", signal=plan, **settings)
    assert code == {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129}[name]
    assert f"Interrupted after {steps} steps" in first
    assert state(tmp_path / "cut")["global_step"] == steps
    code, second = tiny("cut", resume=str(tmp_path / "cut" / "checkpoints" / "last.ckpt"), **settings)
    assert code == 0
    assert second.splitlines()[-1] == whole.splitlines()[-1], "the weights at the end"
    validations = [line for line in (first + second).splitlines() if line.startswith("validated")]
    assert validations == [line for line in whole.splitlines() if line.startswith("validated")]
    assert sorted(os.listdir(tmp_path / "cut" / "checkpoints")) == files


def test_weights_in_training_are_saved_not_the_average_that_is_validated(tiny, tmp_path):
    plan = {"in": "validation", "step": 6, "batch": 1, "names": ["SIGTERM"]}
    tiny("cut", ema=True, signal=plan)
    tiny("whole", ema=True, trainer={"max_epochs": 1, "limit_val_batches": 0}, validated=False)
    cut, whole = state(tmp_path / "cut"), state(tmp_path / "whole")
    for part in ("state_dict", "current_model_state"):
        for name, value in whole[part].items():
            assert torch.equal(cut[part][name], value), f"{part}: {name}"


def test_a_signal_in_the_last_step_lets_training_end(tiny, tmp_path):
    code, printed = tiny("late", signal={"in": "step", "step": 17, "names": ["SIGTERM"]}, **UNVALIDATED)
    assert code == 143
    assert "done 18" in printed
    assert state(tmp_path / "late")["global_step"] == 18


@pytest.mark.parametrize("plan", [{"verb": "test", "in": "test"}, {"in": "sanity"}])
def test_evaluations_stop_and_save_nothing(tiny, tmp_path, plan):
    where = {"in": plan.pop("in"), "step": 0, "batch": 0, "names": ["SIGTERM"]}
    code, printed = tiny("evaluated", signal=where, **plan)
    assert code == 143
    assert "Interrupted after 0 steps" in printed
    assert not (tmp_path / "evaluated" / "checkpoints").exists()


def test_a_run_under_nohup_outlives_its_terminal(tiny):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code, printed = tiny("nohup", signal={"in": "step", "step": 7, "names": ["SIGHUP"]})
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert code == 0
    assert "done 18" in printed


def test_without_model_checkpoint_nothing_is_saved(tiny, tmp_path):
    code, _ = tiny("none", keep=False, signal={"in": "step", "step": 7, "names": ["SIGTERM"]})
    assert code == 143
    assert not list(tmp_path.rglob("*.ckpt"))


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


def start(plans: list[dict], **environment: object) -> Python:
    return Python("-m", "tests.litlab.runs.tiny_run", json.dumps(plans), cwd=ROOT, environment=environment, merge=True)


def test_a_second_sigint_leaves_at_once(tmp_path):
    process = start([{"folder": str(tmp_path), "signal": {"in": "step", "step": 7, "names": ["SIGINT", "SIGINT"]}}])
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "left at once" in printed
    assert "Interrupted" not in printed


def test_one_command_with_two_ranks_ends_with_the_code_of_the_signal(tmp_path):
    """Rank 1, which the command has started, gets the signal."""
    plan = {"in": "step", "step": 7, "rank": 1, "names": ["SIGTERM"]}
    process = start([{"folder": str(tmp_path), "trainer": TWO, "seconds": 0.02, "signal": plan}])
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 143, printed
    assert len(set(re.findall(r"rank \d: Interrupted after (\d+) steps", printed))) == 1, "both after the same step"
    assert printed.count("Interrupted") == 2
    assert 8 <= state(tmp_path)["global_step"] < 18


def test_a_rank_that_is_killed_ends_the_others(tmp_path):
    """The first rank waits for it in a collective; Lightning's observer of its children ends it."""
    plan = {"in": "step", "step": 7, "rank": 1, "names": ["SIGKILL"]}
    process = start([{"folder": str(tmp_path), "trainer": TWO, "signal": plan}])
    process.communicate(timeout=120)
    assert process.returncode != 0


def test_ranks_agree_wherever_one_gets_a_signal(tmp_path):
    """Two ranks, one run after the other: signals, a NaN on one rank, and what is left on the disk."""
    fast, slow = 0.02, 0.4  # seconds for a batch
    moments = [
        ("step", fast, {"in": "step", "step": 7, "rank": 0, "names": ["SIGTERM"]}, {}),
        ("validation", slow, {"in": "validation", "step": 2, "batch": 0, "rank": 1, "names": ["SIGTERM"]}, ONE_EPOCH),
        ("test", slow, {"in": "test", "step": 0, "batch": 0, "rank": "all", "names": ["SIGINT"]}, {"verb": "test"}),
        ("sanity", slow, {"in": "sanity", "step": 0, "batch": 0, "rank": 0, "names": ["SIGTERM"]}, {}),
    ]
    plans: list[dict] = [
        {"folder": str(tmp_path / name), "trainer": TWO, "seconds": seconds, "signal": plan, **settings}
        for name, seconds, plan, settings in moments
    ]
    nan = {"trainer": TWO, "nan": {"step": 8, "rank": 1}}
    plans.append({"folder": str(tmp_path / "nan"), **nan})
    plans.append({"folder": str(tmp_path / "skip"), "guard": {"action": "skip"}, **nan})
    processes = [start(plans, **of_rank) for of_rank in ranks(2)]
    first, second = (process.communicate(timeout=120)[0] for process in processes)
    assert re.findall(r"exit (\d+)", first) == ["143", "143", "130", "143", "2", "0"], first + second
    ends = [
        re.findall(r"(?:Interrupted|UserError) after (\d+) steps, weights finite", rank) for rank in (first, second)
    ]
    assert ends[0] == ends[1], "all ranks after the same step"
    assert 8 <= int(ends[0][0]) < 18
    assert ends[0][1:] == ["2", "0", "0", "8"]
    assert state(tmp_path / "step")["global_step"] == int(ends[0][0])
    assert state(tmp_path / "validation")["global_step"] == 2
    assert not list(tmp_path.glob("sanity/**/*.ckpt"))
    assert "rank 0: error: nan_guard: the gradient is nan at step 8 (epoch 1, batch 2, learning rate 0.05)" in first
    assert "rank 1: error: nan_guard: the loss is nan at step 8 (epoch 1, batch 2, learning rate 0.05)" in second
    assert state(tmp_path / "nan")["global_step"] == 6
    assert state(tmp_path / "skip")["global_step"] == 18
    assert next(v for k, v in state(tmp_path / "skip")["callbacks"].items() if "Guard" in k) == {"skipped": 1}


def test_a_closed_terminal_saves_the_run(series, tmp_path):
    """The kernel sends SIGHUP, and whatever is printed from then on raises an error."""
    run = RunFolder(tmp_path / "lightning_logs/series/version_0")
    command = [
        "-m", "auks", "fit", "--config", CONFIGS / "series.yaml", "--data.dataset=csv",
        f"--data.path={series}", "--data.targets=[load]", "--data.context_length=48",
        "--data.horizon=24", "--model.hidden_size=8",
        "--data.val_fraction=0.2", "--trainer.callbacks=[]", "--trainer.max_epochs=3000", "--early_stopping=null",
    ]  # fmt: skip
    terminal, its_side = os.openpty()
    process = Python(*command, cwd=tmp_path, terminal=os.ttyname(its_side))
    printed = b""
    while not read_json(run.metrics).get("epochs"):
        assert process.poll() is None, printed.decode()
        if select.select([terminal], [], [], 0.05)[0]:
            printed += os.read(terminal, 65536)
    os.close(its_side)
    os.close(terminal)
    assert process.wait(120) == 128 + signal.SIGHUP
    status = read_json(run.status)
    assert (status["status"], status["reason"]) == ("interrupted", "SIGHUP")
    assert state(run.path)["global_step"] >= read_json(run.metrics)["steps"] > 0


def test_slurm_s_signal_puts_the_job_back_into_the_queue(tiny, slurm):
    """It saves and stops as SIGTERM does; Lightning's own handler would go on until the time is up."""
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    plan = {"in": "step", "step": 7, "names": ["SIGUSR1"]}
    code, printed = tiny("slurm", signal=plan, trainer={"plugins": [SLURMEnvironment()], "devices": 1, "num_nodes": 1})
    assert code == 128 + signal.SIGUSR1
    assert "Interrupted after 8 steps" in printed
    assert slurm.read_text() == "requeue 7\n"


def test_a_requeued_job_resumes_its_run(slurm, series, tmp_path, monkeypatch):
    """The very command of the batch script, once more."""
    command = [
        "-m", "auks", "fit", "--config", CONFIGS / "series.yaml", "--data.dataset=csv",
        f"--data.path={series}", "--data.targets=[load]", "--data.context_length=48",
        "--data.horizon=24", "--model.hidden_size=8",
        "--data.val_fraction=0.2", "--trainer.callbacks=[]", "--trainer.max_epochs=30", "--early_stopping=null",
    ]  # fmt: skip
    run = RunFolder(tmp_path / "lightning_logs/series/version_0")
    process = Python(*command, cwd=tmp_path)
    while not read_json(run.metrics).get("epochs"):
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    _, printed = process.communicate()
    assert process.returncode == 128 + signal.SIGUSR1, printed
    assert slurm.read_text() == "requeue 7\n"
    assert read_json(run.metrics)["epochs"] < 30

    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    again = Python(*command, cwd=tmp_path)
    _, printed = again.communicate()
    assert again.returncode == 0, printed
    assert read_json(run.metrics)["epochs"] == 30
    assert [path.name for path in run.path.parent.iterdir()] == ["version_0"]

    monkeypatch.setenv("SLURM_JOB_ID", "8")  # another job begins anew
    other = Python(*command, "--trainer.max_epochs=1", cwd=tmp_path)
    assert other.wait() == 0, other.printed()
    assert run.path.with_name("version_1").is_dir()


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """What SLURM sets for a job, and a program of the name of its own; returns the file of what it was asked."""
    for name, value in {"JOB_ID": "7", "NTASKS": "1", "NTASKS_PER_NODE": "1", "LOCALID": "0", "PROCID": "0",
                        "NODEID": "0", "NODELIST": "here", "JOB_NAME": "job"}.items():  # fmt: skip
        monkeypatch.setenv(f"SLURM_{name}", value)
    asked, program = tmp_path / "asked.txt", tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return asked


def test_a_signal_that_comes_while_ranks_tell_each_other_is_not_lost():
    stop = StopSignals()
    stop._pid = os.getpid()

    def reduce(signum: torch.Tensor, reduce_op: str) -> torch.Tensor:
        if not stop._signum:  # what the other ranks have heard of until then is nothing
            stop._note(signal.SIGTERM, None)
        return signum

    strategy = SimpleNamespace(root_device=torch.device("cpu"), reduce=reduce)
    trainer: Any = SimpleNamespace(world_size=2, global_step=10, strategy=strategy)
    assert not stop._is_due(trainer)
    assert stop._is_due(trainer)
