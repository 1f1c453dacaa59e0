"""Trials of processes that died, fell silent or gave them back: they are queued again."""

import contextlib
import dataclasses
import threading
import time
from typing import Any

import pytest
import sqlalchemy
from optuna.trial import TrialState

from litlab.commands.sweep import storage as storages
from litlab.commands.sweep.results import counted, reason
from litlab.commands.sweep.study import DEATHS, NothingLeft, OthersRunning, SweepStudy, start_study
from tests.litlab.commands.sweep.conftest import run_one, work, worker


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
