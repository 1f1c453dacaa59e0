"""How a sweep stands, as a table."""

from datetime import datetime, timedelta

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from rich.console import Console

from litlab.commands.sweep.table import progress_table, time_left
from tests.litlab.commands.sweep.studies import create, ended, spec

NOON = datetime(2026, 3, 1, 12)
SPACE = {
    "model.width": IntDistribution(32, 256),
    "model.optimizer": CategoricalDistribution(["muon", "adamw"]),
    "model.optimizer.lr": FloatDistribution(1e-4, 1e-1, log=True),
}
PARAMS = {"model.width": 64, "model.optimizer": "muon", "model.optimizer.lr": 0.00123456}


def shown(sweep, trials, width: int = 80, **options) -> str:
    console = Console(width=width, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(progress_table(sweep, trials, NOON, width=width, **options))
    return capture.get()


def rows(text: str) -> dict[str, list[str]]:
    """Cells by the number of the trial."""
    _, _, below = text.partition("\ntrial ")
    return {line.split()[0]: line.split() for line in below.splitlines() if line.strip()}


@pytest.fixture
def sweep(tmp_path):
    return spec(tmp_path, trials=10)


@pytest.fixture
def trials(sweep):
    """Two that run, one done, pruned, failed, requeued, and waiting."""
    made, folder = create(sweep), sweep.folder

    def add(state, minutes_ago, minutes=2.0, **what):
        run = str(folder / f"trial_{len(made.trials):04d}" / "version_0")
        start = NOON - timedelta(minutes=minutes_ago)
        ended(made, PARAMS, SPACE, state=state, start=start, minutes=minutes, runs=[run], **what)

    add(TrialState.COMPLETE, 30, minutes=4, values=[0.81234], reported={0: 0.7, 1: 0.8})
    add(TrialState.PRUNED, 20, reported={0: 0.3})
    add(TrialState.FAIL, 18, minutes=3, reason="out of memory: [red]1.5 GiB[/red]")
    add(TrialState.FAIL, 10, replaced_by=5)
    add(TrialState.RUNNING, 1.5, reported={0: 0.5, 1: 0.6, 2: 0.65})
    add(TrialState.RUNNING, 0.5, replaces=3)
    add(TrialState.WAITING, 0)
    return made.trials


def test_it_counts_what_counts(sweep, trials):
    assert "3 of 10 ended (1 done, 1 pruned, 1 failed), 2 running, 1 waiting\n" in shown(sweep, trials)
    assert "requeued, as they were stopped or killed: trial 3 as 5" in shown(sweep, trials)


@pytest.mark.parametrize("width", [80, 200])
def test_a_row_for_each_running_and_ended_trial(sweep, trials, width):
    text = shown(sweep, trials, width)
    assert rows(text)["4"][:6] == ["4", "running", "3", "0.65", "1.5", "trial_0004/version_0"]
    assert rows(text)["5"][:6] == ["5", "running", "0", "-", "0.50", "trial_0005/version_0"]
    assert rows(text)["0"][:6] == ["0", "done", "2", "0.8123", "4.0", "trial_0000/version_0"]
    assert rows(text)["1"][:6] == ["1", "pruned", "1", "0.3", "2.0", "trial_0001/version_0"]
    assert rows(text)["2"][:4] == ["2", "failed", "0", "-"]
    assert "out of memory: [red]1.5" in text  # not taken for rich's markup
    assert "3" not in rows(text)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_terminals_show_all_numbers(sweep, trials, width):
    text = shown(sweep, trials, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for value in ("0.8123", "0.65", "0.3", "4.0", "0.50", "lr=0.001235"):
        assert value in text.replace("model.optimizer.", "").split(), value


def test_the_best_so_far_and_its_settings(sweep, trials):
    text = shown(sweep, trials, 200)
    assert "best: val/acc 0.8123, trial 0\n" in text
    assert "      model.width=64 model.optimizer=muon model.optimizer.lr=0.001235" in text
    assert "best: val/loss 0.2 ± 0.1414, trial 1" in shown(*_two_losses(sweep))


def _two_losses(sweep):
    lower = spec(sweep.folder, metrics=["val/loss"], directions=["minimize"], seeds=2)
    made = create(lower)
    ended(made, PARAMS, SPACE, values=[0.3])
    ended(made, PARAMS, SPACE, values=[0.2], values_by_seed=[[0.1], [0.3]])
    return lower, made.trials


def test_the_latest_outcomes_come_first_and_not_all(sweep):
    made = create(sweep)
    for number in range(20):
        ended(made, PARAMS, SPACE, values=[number / 20], start=NOON - timedelta(minutes=60 - number))
    for _ in range(30):
        ended(made, PARAMS, SPACE, state=TrialState.RUNNING, start=NOON)
    lines = [line.split()[0] for line in shown(sweep, made.trials).splitlines() if " done " in line]
    assert lines == ["19", "18", "17", "16", "15", "14"]
    assert "and 14 more are running" in shown(sweep, made.trials)


def test_where_nothing_runs_the_best_come_first(sweep):
    made = create(sweep)
    for number, value in enumerate([0.1, 0.9, 0.3, 0.8, 0.2, 0.7, 0.5, 0.6]):
        ended(made, PARAMS, SPACE, values=[value], start=NOON - timedelta(minutes=60 - number))
    for number in range(5):
        ended(made, PARAMS, SPACE, state=TrialState.FAIL, start=NOON - timedelta(minutes=20 - number), reason="no")
    below = shown(sweep, made.trials).partition("\ntrial ")[2].splitlines()[1:]
    assert [line.split()[0] for line in below] == ["1", "3", "5", "7", "6", "2", "12", "11", "10"]


def test_what_was_searched_shows_on_wide_terminals_only(sweep, trials):
    assert "searched values" in shown(sweep, trials, 200)
    assert "searched values" not in shown(sweep, trials, 80)


def test_several_metrics_have_a_column_each_and_a_pareto_front(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    made = create(sweep)
    for values in ([0.9, 5.0], [0.8, 1.0], [0.7, 2.0]):
        ended(made, PARAMS, SPACE, values=values)
    text = shown(sweep, made.trials)
    assert "best: a Pareto front of 2 trials\nval/acc 0.9, cost 5, trial 0" in text
    assert "val/acc 0.8, cost 1, trial 1" in text
    assert rows(text)["2"][:6] == ["2", "done", "0", "0.7", "2", "1.0"]


def test_time_left_is_what_the_trials_took_shared_out(sweep, trials):
    # They took 4, 2 and 3 minutes. Of the 10, 3 have ended, 2 run (1.5 and 2.5 minutes to go), 5 are to come.
    assert time_left(sweep, trials, NOON) == timedelta(minutes=(5 * 3 + 1.5 + 2.5) / 2)
    assert "time left: about 10 min" in shown(sweep, trials)  # 9.5
    soon = NOON + timedelta(minutes=4)
    assert time_left(sweep, trials, NOON, until=soon) == timedelta(minutes=4)
    assert time_left(sweep, trials, NOON, until=NOON - timedelta(hours=1)) == timedelta()
    assert "time left: about 4 min" in shown(sweep, trials, until=soon)


def test_time_left_is_not_made_up(sweep, tmp_path):
    made = create(sweep)
    assert time_left(sweep, made.trials, NOON) is None
    assert "no trial is running" in shown(sweep, made.trials)
    assert "no trial completed yet" in shown(sweep, made.trials)
    ended(made, PARAMS, SPACE, state=TrialState.RUNNING, start=NOON)
    assert "time left: not known yet" in shown(sweep, made.trials)
    unlimited = spec(tmp_path, trials=None, hours=2.0)
    ended(made, PARAMS, SPACE, values=[0.5], start=NOON - timedelta(minutes=9))
    assert time_left(unlimited, made.trials, NOON) is None
    assert "\n1 ended (1 done, " in shown(unlimited, made.trials)


def test_a_sweep_whose_budget_is_used_up_is_finished(tmp_path):
    sweep = spec(tmp_path, trials=1)
    made = create(sweep)
    ended(made, PARAMS, SPACE, values=[0.5])
    assert "finished" in shown(sweep, made.trials).splitlines()
