"""Whole sweeps of real fits, through the command line: killed, stopped, several at once."""

import signal
import time

import psutil
import pytest
from optuna.trial import FrozenTrial, TrialState

from litlab.runs.folder import RunFolder
from tests.litlab.commands.sweep.conftest import Sweep, kill_tree, tree


def counted(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Trials without those that were requeued, which have failed; their successors have the same values."""
    by_number = {trial.number: trial for trial in trials}
    for trial in trials:
        if "replaces" in trial.user_attrs:
            earlier = by_number[trial.user_attrs["replaces"]]
            assert earlier.state == TrialState.FAIL
            assert earlier.params.items() <= trial.params.items()
    replaced = [trial.user_attrs["replaces"] for trial in trials if "replaces" in trial.user_attrs]
    assert len(set(replaced)) == len(replaced)
    return [trial for trial in trials if trial.number not in replaced]


def check_complete(sweep: Sweep, budget: int, storage: str | None = None) -> list[FrozenTrial]:
    """None lost, doubled or left running: exactly the budget, each with its own runs, each run finished."""
    trials = counted(sweep.trials(storage))
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * budget
    runs = [run for trial in trials for run in trial.user_attrs["runs"]]
    assert len(set(runs)) == len(runs) == budget
    for run in runs:
        assert RunFolder(sweep.folder / run).state()["status"] == "finished"
    assert len({trial.user_attrs["folder"] for trial in trials}) == budget
    assert all(len(trial.intermediate_values) == 4 for trial in trials)
    return trials


def test_two_commands_one_of_which_is_killed(sweep):
    """On one SQLite file: together exactly the budget.

    The fits of the killed one notice, save their state and end; the other one continues them.
    """
    sweep.write(trials=3)
    sweep.hold()
    commands = [sweep.start(), sweep.start()]
    running = sweep.until_held()
    [killed] = [command for command in commands if command.pid == running.user_attrs["process"]["pid"]]
    [other] = [command for command in commands if command is not killed]
    fits = tree(killed.pid)[1:]
    killed.kill()
    _, alive = psutil.wait_procs(fits, timeout=60)
    assert not alive
    sweep.go_on()
    outcome = sweep.end(other)
    assert outcome.code == 0, outcome
    trials = check_complete(sweep, 3)
    assert {trial.user_attrs["process"]["pid"] for trial in trials} >= {other.pid}
    [again] = [trial for trial in trials if trial.user_attrs.get("replaces") == running.number]
    assert again.user_attrs["runs"] == running.user_attrs["runs"]
    log = (sweep.kept / again.user_attrs["folder"] / "seed_0.log").read_text()
    assert log.count("epoch 1/4") == 1
    assert "SIGTERM" in log


def test_killed_fork_server(sweep):
    """Its fit is killed, and the trial continued with a new fork server, which does the imports."""
    sweep.write(trials=1)
    sweep.hold()
    command = sweep.start()
    sweep.until_held()
    started = psutil.Process(command.pid).children()
    [server] = [process for process in started if "forkserver import main" in " ".join(process.cmdline())]
    server.kill()
    sweep.go_on()
    outcome = sweep.end(command)
    assert (outcome.code, outcome.err) == (0, "")
    [trial] = check_complete(sweep, 1)
    assert trial.user_attrs["deaths"] == 1


def test_killed_sweep_continues(sweep, run_here):
    """kill -9 of all its processes in mid-trial; the same command, with two workers; then nothing is left to do."""
    sweep.write(trials=2, metric=["val/mse", "val/mae"], direction=["minimize", "minimize"])
    sweep.hold()
    command = sweep.start()
    sweep.until_held()
    left = tree(command.pid)
    kill_tree(command.pid)
    sweep.go_on()
    psutil.wait_procs(left, timeout=30)
    assert TrialState.RUNNING in [trial.state for trial in sweep.trials()]

    outcome = run_here("--workers", 2)
    assert outcome.code == 0, outcome
    trials = check_complete(sweep, 2)
    assert any("replaces" in trial.user_attrs for trial in trials)
    assert (sweep.kept / "report" / "report.html").is_file()
    assert "--config lightning_logs/sweeps/tiny/best_1.yaml" in outcome.out
    assert all(len(trial.values) == 2 for trial in trials)

    outcome = run_here()
    assert (outcome.code, outcome.err) == (0, "")
    assert "The sweep tiny is finished" in outcome.out
    assert len(sweep.trials()) == trials[-1].number + 1


def test_stopped_sweep_continues(sweep, run_here):
    """SIGTERM: the fit saves its state, its trial is queued; the same command with more trials takes it up.

    One block of the space is of another class than the base's, which the check completes.
    """
    optimizers = {"sgd": {"class_path": "torch.optim.SGD"}, "adam": {"class_path": "torch.optim.Adam"}}
    sweep.write(
        trials=1,
        space={"model.hidden_size": {"low": 8, "high": 64}, "model.optimizer": {"choices": optimizers}},
    )
    sweep.hold()
    command = sweep.start()
    running = sweep.until_held()
    command.send_signal(signal.SIGTERM)
    outcome = sweep.end(command)
    sweep.go_on()
    assert (outcome.code, outcome.err) == (143, "SIGTERM: stopped; the same command continues.\n")
    stopped, queued = sweep.trials()
    assert (stopped.state, queued.state) == (TrialState.FAIL, TrialState.WAITING)
    run = RunFolder(sweep.folder / running.user_attrs["runs"][0])
    assert run.state()["status"] == "interrupted"

    outcome = run_here("--trials", 2)
    assert outcome.code == 0, outcome
    first, second = check_complete(sweep, 2)
    assert first.user_attrs["runs"] == running.user_attrs["runs"]
    assert "deaths" not in first.user_attrs or first.user_attrs["deaths"] == 0
    assert second.params != first.params


def test_bad_ends(sweep, run_here):
    """Crash, exception, memory, hang and NaN are outcomes of trials, with their reasons; the sweep continues.

    What is worse than the first trial is pruned: it stops in order after the validation that says so.
    """
    trouble = {
        kind: [{"class_path": "tests.litlab.commands.sweep.trouble.Trouble", "init_args": {"kind": kind}}]
        for kind in ("none", "hangs", "killed", "raises", "memory", "nan", "worse")
    }
    settings = {name: value for name, value in sweep.content["settings"].items() if name != "trainer.callbacks"}
    sweep.write(
        settings=settings,
        space={"trainer.callbacks": {"choices": trouble}},
        sampler="grid",
        pruner={"name": "median", "n_startup_trials": 1},
        trials=None,
        stall_minutes=0.2,
        seeds=2,
        spread=2.0,
    )
    outcome = run_here("--workers", 2)
    assert outcome.code == 0, outcome
    trials = {trial.params["trainer.callbacks"]: trial for trial in sweep.trials()}
    assert list(trials) == list(trouble)
    assert trials["none"].state == TrialState.COMPLETE
    first, second = trials["none"].user_attrs["values_by_seed"]
    assert first[0] != second[0]
    means = [(a + b) / 2 + 2 * abs(a - b) / 2**0.5 for a, b in zip(first, second, strict=True)]
    assert trials["none"].values == pytest.approx(means)
    assert len(trials["none"].user_attrs["runs"]) == 2
    reasons = {kind: trial.user_attrs.get("reason") for kind, trial in trials.items()}
    assert reasons["killed"] == "killed by SIGKILL: perhaps it ran out of memory"
    assert reasons["raises"] == "exit code 1: RuntimeError: it broke"
    assert reasons["memory"].startswith("out of memory: try half")
    assert reasons["hangs"] == "stalled: nothing was reported for 0.2 minutes; killed"
    assert any("RuntimeError: it broke" in line for line in trials["raises"].user_attrs["tail"])
    assert reasons["nan"] == "val/mse is nan in epoch 2"
    assert (trials["worse"].state, len(trials["worse"].intermediate_values)) == (TrialState.PRUNED, 1)
    [pruned] = trials["worse"].user_attrs["runs"]
    assert RunFolder(sweep.folder / pruned).state()["status"] == "finished"
    assert (sweep.folder / pruned / "checkpoints" / "last.ckpt").is_file()
    assert "Trial 0 of the sweep tiny" in (sweep.kept / "best.yaml").read_text()


def test_metric_that_is_never_logged(sweep, run_here):
    """The first trial shows it: the sweep ends."""
    sweep.write(metric="val/msee")
    outcome = run_here()
    line = f"error: {sweep.file}: metric: fit logs no 'val/msee'; did you mean 'val/mse'?\n"
    assert (outcome.code, outcome.err) == (2, line)
    [trial] = sweep.trials()
    assert trial.user_attrs["reason"] in line


def test_second_signal_ends_the_command_at_once(sweep):
    """Its fit saves its state all the same."""
    sweep.write(trials=1)
    sweep.hold()
    command = sweep.start()
    running = sweep.until_held()
    others = tree(command.pid)[1:]
    command.send_signal(signal.SIGINT)
    time.sleep(0.2)
    command.send_signal(signal.SIGINT)
    assert command.wait(10) == 130
    psutil.wait_procs(others, timeout=60)
    assert RunFolder(sweep.folder / running.user_attrs["runs"][0]).state()["status"] == "interrupted"
    assert [trial.state for trial in sweep.trials()] == [TrialState.RUNNING]
