"""Who gets which trial: the budget, dead and silent processes, grids, another sweep file."""

import contextlib
import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import sqlalchemy
from optuna.trial import TrialState

from litlab.errors import UserError
from litlab.sweep import storage as storages
from litlab.sweep.processes import Stop
from litlab.sweep.results import counted, reason
from litlab.sweep.samplers import make_sampler
from litlab.sweep.space import suggest
from litlab.sweep.spec import SweepSpec
from litlab.sweep.study import (
    DEATHS,
    NothingLeft,
    OthersRunning,
    SweepStudy,
    check_fingerprint,
    find_study,
    start_study,
)  # fmt: skip
from litlab.sweep.workers import run_workers
from tests.litlab.sweep.studies import choice, search_range, spec

SPACE = {"model.width": search_range(1, 3), "model.cell": choice({"lstm": "lstm", "gru": "gru"})}


@pytest.fixture
def small(tmp_path) -> SweepSpec:
    return spec(tmp_path, trials=3, space=SPACE, pruner={"name": "none"})


def worker(spec: SweepSpec) -> SweepStudy:
    """The study as another command has it."""
    study = find_study(spec)
    assert study is not None
    return study


def work(study: SweepStudy, objective: Any = lambda trial: suggest(SPACE, trial)["model.width"]) -> None:
    with pytest.raises(NothingLeft):
        study.optimize(objective, catch=(RuntimeError,))


def run_one(study: SweepStudy) -> None:
    """Ask for a trial and leave it as a process does that is killed in it."""

    class Killed(BaseException):
        pass

    def objective(trial: optuna.Trial) -> float:
        suggest(SPACE, trial)
        trial.set_user_attr("runs", ["here"])
        if "replaces" not in trial.user_attrs:
            trial.report(1.0, 0)
        raise Killed

    with pytest.raises(Killed):
        study.optimize(objective)


def test_exactly_the_budget(small):
    study = start_study(small)
    work(worker(small))
    work(worker(small))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    assert study.is_finished()
    work(worker(dataclasses.replace(small, trials=5)))
    assert len(study.trials) == 5


def test_no_file_stays_open(small):
    study = start_study(small)
    run_one(worker(small))
    assert len(study.trials) == 1
    assert not [file.path for file in psutil.Process().open_files() if Path(file.path).is_relative_to(small.folder)]


def test_failures_count(small):
    def fail(trial: optuna.Trial) -> float:
        trial.set_user_attr("reason", "it is bad")
        raise RuntimeError

    study = start_study(small)
    work(worker(small), fail)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 3
    assert not study.is_finished()  # there is nothing to be content with: the same command starts anew
    assert start_study(small).trials == []


def test_no_trial_after_the_time(small):
    study = start_study(small)
    run_workers(small, study.storage, 1, until=0.0, stop=Stop(), look=lambda: None)
    assert study.trials == []


def test_what_goes_wrong_in_a_worker_ends_the_others(small, monkeypatch):
    asked: list[int] = []

    def ask(*_: Any) -> optuna.Trial:
        asked.append(1)
        raise UserError("the disk is full") if len(asked) == 1 else OthersRunning

    study = start_study(small)
    monkeypatch.setattr(SweepStudy, "ask", ask)
    monkeypatch.setattr("litlab.sweep.workers.SECONDS_BETWEEN_ASKS", 0.1)
    monkeypatch.setattr("litlab.sweep.workers.SECONDS_BETWEEN_LOOKS", 0.1)
    with pytest.raises(UserError, match="the disk is full"):
        run_workers(small, study.storage, 2, until=None, stop=Stop(), look=lambda: None)


def test_trial_of_a_dead_process_is_requeued(small, monkeypatch):
    """With its values, runs and what it reported; the dead one's trial does not count."""
    study = start_study(small)
    with monkeypatch.context() as patch:
        as_of = storages.this_process()
        patch.setattr(storages, "this_process", lambda: {**as_of, "born": as_of["born"] - 100})  # an earlier process
        run_one(worker(small))
    work(worker(small))
    failed, again, *_ = study.trials
    assert failed.state == TrialState.FAIL
    assert (again.user_attrs["replaces"], again.user_attrs["deaths"]) == (0, 1)
    assert again.params == failed.params
    assert again.user_attrs["runs"] == ["here"]
    assert again.intermediate_values == {0: 1.0}
    assert [trial.state for trial in counted(study.trials)] == [TrialState.COMPLETE] * 3


def test_trial_of_a_dead_process_is_requeued_once(small, monkeypatch):
    """However many threads find it at the same time."""
    one = dataclasses.replace(small, trials=1)
    study = start_study(one)
    with monkeypatch.context() as patch:
        patch.setattr(storages.Storage, "claim", _killed)
        with pytest.raises(KeyboardInterrupt):
            worker(one).optimize(lambda trial: 0.0)
    orphans = storages.Storage.orphans

    def slowly(*arguments):
        found = orphans(*arguments)
        time.sleep(0.3)
        return found

    monkeypatch.setattr(storages.Storage, "orphans", slowly)

    def take() -> None:
        with contextlib.suppress(NothingLeft, OthersRunning):
            SweepStudy(one, study.storage).optimize(lambda trial: 0.0, n_trials=1)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_trial_of_a_living_process_is_left_alone(small):
    """However long it was silent: here one can see that the process is there."""
    study = start_study(small)
    run_one(worker(small))
    _silence(study)
    fail_stale(study)
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING]


def test_silent_process_elsewhere(small, monkeypatch):
    study = start_study(small)
    with monkeypatch.context() as patch:
        patch.setattr(storages, "_machine", lambda: "another machine")
        run_one(worker(small))
    fail_stale(study)
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING]
    _silence(study)
    fail_stale(study)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.WAITING]


def test_process_that_was_killed_before_it_could_claim_its_trial(small, monkeypatch):
    study = start_study(small)
    with monkeypatch.context() as patch:
        patch.setattr(storages.Storage, "claim", _killed)
        with pytest.raises(KeyboardInterrupt):
            worker(small).optimize(lambda trial: 0.0)
    fail_stale(study)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.WAITING]


def test_requeued_trials_are_waited_for(small):
    """The budget is used up, but what runs elsewhere may have to be run again."""
    one = dataclasses.replace(small, trials=1)
    start_study(one)
    run_one(worker(one))
    with pytest.raises(OthersRunning):
        worker(one).optimize(lambda trial: 0.0)


def test_trial_that_is_given_back(small):
    """Is queued as another one; that the command was stopped is not held against it."""
    study = start_study(small)
    own = worker(small)
    for _ in range(DEATHS + 1):
        run_one(own)
        own.give_back(own.get_trials()[-1].number, killed=False)
    assert study.trials[-1].state == TrialState.WAITING
    assert len(counted(study.trials)) == 1


def test_process_that_dies_with_its_trial_again_and_again(small, monkeypatch):
    one = dataclasses.replace(small, trials=1)
    study = start_study(one)
    monkeypatch.setattr(storages, "is_dead", lambda trial, silent: True)
    for _ in range(DEATHS):
        run_one(worker(one))
    fail_stale(study)
    [last] = counted(study.trials)
    assert last.state == TrialState.FAIL
    assert reason(last) == "killed with its command or its fork server 5 times"


def test_grid_is_each_point_once(small):
    grid = dataclasses.replace(small, trials=6, sampler={"name": "grid"})
    study = start_study(grid)
    with pytest.raises(NothingLeft):
        worker(grid).optimize(lambda trial: suggest(SPACE, trial)["model.width"])
    points = {(trial.params["model.width"], trial.params["model.cell"]) for trial in study.trials}
    assert len(points) == len(study.trials) == 6


def test_seed_of_the_sampler(small):
    """Workers with one seed try different values; another sweep with that seed tries the same ones."""

    def values(name: str) -> list[float]:
        space = {"model.lr": search_range(0.0, 1.0)}
        sweep = dataclasses.replace(small, name=name, sampler={"name": "random", "seed": 1}, space=space)
        study = start_study(sweep)
        for _ in range(3):
            worker(sweep).optimize(lambda trial: suggest(space, trial)["model.lr"], n_trials=1)
        return [trial.value for trial in study.trials]

    first = values("first")
    assert len(set(first)) == 3
    assert values("second") == first


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes", "nsga2"])
def test_samplers(sampler):
    study = optuna.create_study(sampler=make_sampler({"name": sampler, "seed": 1}))
    study.optimize(lambda trial: suggest(SPACE, trial)["model.width"], n_trials=20)
    assert len({tuple(trial.params.values()) for trial in study.trials}) > 1


def test_other_sweep_file(small):
    start_study(small)
    work(worker(small))
    other = dataclasses.replace(small, space={**SPACE, "model.width": search_range(1, 4)})
    line = "cifar.yaml: space: differs from what the trials of the sweep 'cifar' were run with; change it back, or"
    with pytest.raises(UserError, match=line):
        start_study(other)
    study = find_study(dataclasses.replace(small, metrics=["val/loss"]))
    assert study is not None
    with pytest.raises(UserError, match=r"cifar\.yaml: metric: differs from"):
        check_fingerprint(study)
    start_study(dataclasses.replace(small, trials=9, pruner={"name": "median"}))


def test_choices_of_several_types(small):
    sweep = dataclasses.replace(small, space={"trainer.gradient_clip_val": choice({0.1: 0.1, None: None, "x": "x"})})
    start_study(sweep)
    start_study(sweep)


def test_edits_inside_a_file_of_the_base(small, tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text("trainer: {max_epochs: 3}")
    sweep = dataclasses.replace(small, base=[base])
    start_study(sweep)
    work(worker(sweep))
    base.write_text("# Three epochs.\ntrainer: {max_epochs: 3}")
    start_study(sweep)
    base.write_text("trainer: {max_epochs: 4}")
    with pytest.raises(UserError, match=r"cifar\.yaml: base: differs from what the trials"):
        start_study(sweep)


def test_study_that_was_not_started(small):
    assert find_study(small) is None
    assert not any(Path(small.folder).iterdir())


def fail_stale(study: SweepStudy) -> None:
    """Do what each thread does before it takes a trial."""
    with study.storage.lock(study.spec.name):
        study._requeue_orphans()


def _silence(study: SweepStudy) -> None:
    """Makes the last heartbeat of all trials an old one."""
    with study.storage.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'"))


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
