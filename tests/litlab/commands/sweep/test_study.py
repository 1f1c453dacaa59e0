"""Who gets which trial: the budget, grids, seeds, another sweep file."""

import dataclasses
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.trial import TrialState

from litlab.commands.sweep.processes import Stop
from litlab.commands.sweep.samplers import make_sampler
from litlab.commands.sweep.space import suggest
from litlab.commands.sweep.study import (
    NothingLeft,
    OthersRunning,
    SweepStudy,
    check_fingerprint,
    find_study,
    start_study,
)
from litlab.commands.sweep.workers import run_workers
from litlab.errors import UserError
from tests.litlab.commands.sweep.conftest import SMALL_SPACE, run_one, work, worker
from tests.litlab.commands.sweep.studies import choice, search_range


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
    monkeypatch.setattr("litlab.commands.sweep.workers.SECONDS_BETWEEN_ASKS", 0.1)
    monkeypatch.setattr("litlab.commands.sweep.workers.SECONDS_BETWEEN_LOOKS", 0.1)
    with pytest.raises(UserError, match="the disk is full"):
        run_workers(small, study.storage, 2, until=None, stop=Stop(), look=lambda: None)


def test_grid_is_each_point_once(small):
    grid = dataclasses.replace(small, trials=6, sampler={"name": "grid"})
    study = start_study(grid)
    with pytest.raises(NothingLeft):
        worker(grid).optimize(lambda trial: suggest(SMALL_SPACE, trial)["model.width"])
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
    study.optimize(lambda trial: suggest(SMALL_SPACE, trial)["model.width"], n_trials=20)
    assert len({tuple(trial.params.values()) for trial in study.trials}) > 1


def test_other_sweep_file(small):
    start_study(small)
    work(worker(small))
    other = dataclasses.replace(small, space={**SMALL_SPACE, "model.width": search_range(1, 4)})
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
