"""The results of a sweep's trials."""

import math
from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from litlab.commands.sweep import results as outcomes
from tests.litlab.commands.sweep.studies import create, ended, spec

SPACE = {"model.width": optuna.distributions.IntDistribution(1, 9)}


def of(values: list[list[float]], directions: list[str], folder: Path = Path("logs")):
    """A sweep and completed trials with these values."""
    metrics = [f"val/m{number}" for number in range(len(directions))]
    sweep = spec(folder, metrics=metrics, directions=directions)
    made = create(sweep)
    for number, value in enumerate(values):
        ended(made, {"model.width": number + 1}, SPACE, values=value)
    return sweep, made.trials


def numbers(trials):
    return [trial.number for trial in trials]


def test_the_best_is_the_highest_or_the_lowest_as_the_sweep_says():
    values = [[0.5], [0.9], [0.1], [0.9]]
    assert numbers(outcomes.best(*of(values, ["maximize"]))) == [1]
    assert numbers(outcomes.best(*of(values, ["minimize"]))) == [2]
    assert numbers(outcomes.ranked(*of(values, ["maximize"]))) == [1, 3, 0, 2]
    assert numbers(outcomes.ranked(*of(values, ["minimize"]))) == [2, 0, 1, 3]


def test_the_pareto_front_is_that_of_optuna():
    values = [[0.5, 3.0], [0.9, 9.0], [0.6, 3.0], [0.6, 4.0], [0.1, 1.0], [0.9, 9.0]]
    sweep, trials = of(values, ["maximize", "minimize"])
    made = create(sweep)
    made.add_trials(trials)
    front = numbers(outcomes.best(sweep, trials))
    assert front == [1, 5, 2, 4]
    assert set(front) == set(numbers(made.best_trials))
    assert numbers(outcomes.ranked(sweep, trials)) == [*front, 3, 0]


def test_only_completed_trials_are_ranked():
    sweep, trials = of([[0.3]], ["minimize"])
    made = create(sweep)
    ended(made, {"model.width": 1}, SPACE, state=TrialState.PRUNED, reported={0: 0.2})
    assert outcomes.best(sweep, made.trials) == []
    assert numbers(outcomes.best(sweep, [*trials, *made.trials])) == [0]


def test_the_spread_is_the_standard_deviation_over_seeds():
    made = create(spec(Path("logs")))
    ended(made, {}, {}, values=[0.4], values_by_seed=[[0.3, 5.0], [0.5, 5.0]])
    ended(made, {}, {}, values=[0.4], values_by_seed=[[0.3, 5.0]])
    assert math.isclose(outcomes.spread(made.trials[0], 0), 0.1 * math.sqrt(2))
    assert outcomes.spread(made.trials[0], 1) == 0.0
    assert outcomes.spread(made.trials[1], 0) is None


def test_settings_stand_in_the_order_of_the_sweep_file():
    made = create(spec(Path("logs")))
    ended(made, {"zeta": 1, "model.width": 2}, {"zeta": SPACE["model.width"], **SPACE}, values=[1.0])
    assert outcomes.settings(spec(Path("logs")), made.trials[0]) == "model.width=2 zeta=1"


def test_settings_are_written_as_in_yaml():
    choices = (0.00123456, 131072, True, None, "muon", 1e-7)
    made = create(spec(Path("logs")))
    ended(
        made,
        {f"p{i}": choice for i, choice in enumerate(choices)},
        {f"p{i}": CategoricalDistribution(choices) for i in range(6)},
        values=[1.0],
    )
    written = outcomes.settings(spec(Path("logs")), made.trials[0])
    assert written == "p0=0.001235 p1=131072 p2=true p3=null p4=muon p5=1e-07"


def test_reason_of_a_trial_whose_process_was_killed():
    made = create(spec(Path("logs")))
    ended(made, {}, {}, state=TrialState.FAIL, reason="it broke")
    ended(made, {}, {}, state=TrialState.FAIL, deaths=4)
    assert outcomes.reason(made.trials[0]) == "it broke"
    assert outcomes.reason(made.trials[1]) == "killed with its command or its fork server 5 times"


def test_the_last_run_is_relative_to_the_sweeps_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = spec(Path("logs/cifar"))
    made = create(sweep)
    runs = ["logs/cifar/trial_0000/version_0", str(tmp_path / "logs/cifar/trial_0000/version_1"), "/far/version_2"]
    for number in range(len(runs) + 1):
        ended(made, {}, {}, values=[0.4], runs=runs[:number])
    found = [outcomes.last_run(sweep, trial) for trial in made.trials]
    assert found == ["", "trial_0000/version_0", "trial_0000/version_1", "/far/version_2"]


def test_the_last_value_is_that_of_the_last_validation():
    made = create(spec(Path("logs")))
    ended(made, {}, {}, state=TrialState.PRUNED, reported={0: 0.1, 1: 0.2})
    ended(made, {}, {}, state=TrialState.FAIL)
    assert [outcomes.last_value(trial) for trial in made.trials] == [0.2, None]
