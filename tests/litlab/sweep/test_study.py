"""Who gets which trial: the budget, dead and silent workers, grids, another sweep file."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import sqlalchemy
from optuna.trial import TrialState

from litlab.errors import UserError
from litlab.sweep import heartbeat as liveness
from litlab.sweep import study as studies
from litlab.sweep.space import Choice, Range, suggest
from litlab.sweep.spec import SweepSpec
from litlab.sweep.storage import open_storage
from litlab.sweep.study import NothingLeft, SweepStudy, begin_study, check_fingerprint, counted, find_study, size
from tests.litlab.sweep.studies import spec

SPACE = {"model.width": Range(1, 3), "model.cell": Choice({"lstm": "lstm", "gru": "gru"})}


@pytest.fixture
def small(tmp_path) -> SweepSpec:
    return spec(tmp_path, trials=3, space=SPACE, pruner={"name": "none"})


def worker(spec: SweepSpec, **settings: Any) -> SweepStudy:
    """The study as a worker has it."""
    storage = open_storage(spec.folder)
    assert storage is not None
    return SweepStudy(spec, storage, **settings)


def work(study: SweepStudy, objective: Any = lambda trial: suggest(SPACE, trial)["model.width"]) -> None:
    with pytest.raises(NothingLeft):
        study.optimize(objective, catch=(RuntimeError,))


def run_one(study: SweepStudy) -> None:
    """Asks for a trial and leaves it as a worker does that is killed in it."""

    class Killed(BaseException):
        pass

    def objective(trial: optuna.Trial) -> float:
        suggest(SPACE, trial)
        trial.set_user_attr("runs", ["here"])
        if not trial.user_attrs.get("deaths"):
            trial.report(1.0, 0)
        raise Killed

    with pytest.raises(Killed):
        study.optimize(objective)


def test_exactly_the_budget(small):
    study = begin_study(small)
    work(worker(small))
    work(worker(small))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    assert study.is_finished()
    work(worker(dataclasses.replace(small, trials=5)))
    assert len(study.trials) == 5


def test_no_file_stays_open(small):
    study = begin_study(small)
    run_one(worker(small))
    assert len(study.trials) == 1
    assert not [file.path for file in psutil.Process().open_files() if Path(file.path).is_relative_to(small.folder)]


def test_failures_count(small):
    def fail(trial: optuna.Trial) -> float:
        trial.set_user_attr("reason", "it is bad")
        raise RuntimeError

    study = begin_study(small)
    work(worker(small), fail)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL] * 3
    assert not study.is_finished()  # there is nothing to be content with: the same command begins anew
    assert begin_study(small).trials == []


def test_no_trial_after_the_time(small):
    study = begin_study(small)
    work(worker(small, until=time.time() - 1))
    assert study.trials == []


def test_trial_of_a_dead_worker_is_taken_up(small, monkeypatch):
    """With its values, runs and what it reported; the dead one's trial is no outcome."""
    study = begin_study(small)
    dead = worker(small)
    monkeypatch.setattr(liveness, "_born", lambda: psutil.Process().create_time() - 100)  # as an earlier process had it
    run_one(dead)
    monkeypatch.undo()
    work(worker(small))
    failed, again, *_ = study.trials
    assert (failed.state, failed.user_attrs["replaced_by"]) == (TrialState.FAIL, again.number)
    assert (again.user_attrs["replaces"], again.user_attrs["deaths"]) == (0, 1)
    assert again.params == failed.params
    assert again.user_attrs["runs"] == ["here"]
    assert again.intermediate_values == {0: 1.0}
    assert [trial.state for trial in counted(study.trials)] == [TrialState.COMPLETE] * 3


def test_trial_of_a_living_worker_is_left_alone(small, monkeypatch):
    """However long it was silent: here one can see that its process is there."""
    study = begin_study(small)
    run_one(worker(small))
    _silence(study)
    study.requeue_orphans()
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING]


def test_silent_worker_elsewhere(small, monkeypatch):
    study = begin_study(small)
    elsewhere = worker(small)
    monkeypatch.setattr(liveness, "_process_space", lambda: "another machine")
    run_one(elsewhere)
    monkeypatch.undo()
    study.requeue_orphans()
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING]
    _silence(study)
    study.requeue_orphans()
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.WAITING]


def test_taking_up_that_was_itself_killed(small, monkeypatch):
    """Between the successor and the end of the dead one's trial: there is no second successor."""
    study = begin_study(small)
    run_one(worker(small))
    monkeypatch.setattr(studies, "is_dead", lambda trial, silent: True)
    with monkeypatch.context() as patch:
        patch.setattr(type(study._storage), "set_trial_state_values", _killed)
        with pytest.raises(KeyboardInterrupt):
            study.requeue_orphans()
    study.requeue_orphans()
    assert [trial.state for trial in study.trials] == [TrialState.FAIL, TrialState.WAITING]
    assert len(counted(study.trials)) == 1


def test_worker_that_dies_with_its_trial_again_and_again(small, monkeypatch):
    study = begin_study(dataclasses.replace(small, trials=1))
    for _ in range(studies.DEATHS):
        run_one(worker(dataclasses.replace(small, trials=1)))
        with monkeypatch.context() as patch:
            patch.setattr(studies, "is_dead", lambda trial, silent: True)
            study.requeue_orphans()
    [last] = counted(study.trials)
    assert last.state == TrialState.FAIL
    assert last.user_attrs["reason"] == "5 workers were killed while they ran it"


def test_grid_is_each_point_once(small):
    grid = dataclasses.replace(small, trials=None, sampler={"name": "grid"})
    assert size(grid) == 6
    study = begin_study(grid)
    with pytest.raises(NothingLeft):
        worker(grid).optimize(lambda trial: suggest(SPACE, trial)["model.width"])
    points = {(trial.params["model.width"], trial.params["model.cell"]) for trial in study.trials}
    assert len(points) == len(study.trials) == 6


def test_seed_of_the_sampler(small):
    """Workers with one seed try different values; another sweep with that seed tries the same ones."""

    def values(name: str) -> list[float]:
        space = {"model.lr": Range(0.0, 1.0)}
        sweep = dataclasses.replace(small, name=name, sampler={"name": "random", "seed": 1}, space=space)
        study = begin_study(sweep)
        for _ in range(3):
            worker(sweep).optimize(lambda trial: suggest(space, trial)["model.lr"], n_trials=1)
        return [trial.value for trial in study.trials]

    first = values("first")
    assert len(set(first)) == 3
    assert values("second") == first


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes", "nsga2"])
def test_samplers(small, sampler):
    sweep = dataclasses.replace(small, sampler={"name": sampler, "seed": 1}, trials=8)
    study = begin_study(sweep)
    work(worker(sweep))
    assert len({trial.params["model.width"] for trial in study.trials}) > 1


def test_other_sweep_file(small):
    begin_study(small)
    work(worker(small))
    other = dataclasses.replace(small, space={**SPACE, "model.width": Range(1, 4)})
    line = (
        "cifar.yaml: space: is not what the trials of the sweep 'cifar' were made with: put it back, or give the sweep"
    )
    with pytest.raises(UserError, match=line):
        begin_study(other)
    study = find_study(dataclasses.replace(small, metrics=["val/loss"]))
    assert study is not None
    with pytest.raises(UserError, match=r"cifar\.yaml: metric: is not what"):
        check_fingerprint(study)
    begin_study(dataclasses.replace(small, trials=9, pruner={"name": "median"}))


def test_edits_inside_a_file_of_the_base(small, tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text("trainer: {max_epochs: 3}")
    sweep = dataclasses.replace(small, base=[base])
    begin_study(sweep)
    work(worker(sweep))
    base.write_text("# Three epochs.\ntrainer: {max_epochs: 3}")
    begin_study(sweep)
    base.write_text("trainer: {max_epochs: 4}")
    with pytest.raises(UserError, match=r"cifar\.yaml: base: is not what the trials"):
        begin_study(sweep)


def test_study_that_was_not_begun(small):
    assert find_study(small) is None
    assert not any(Path(small.folder).iterdir())


def _silence(study: SweepStudy) -> None:
    """Makes the last heartbeat of all trials an old one."""
    with study.kept_in.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = '2020-01-01 00:00:00'"))


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
