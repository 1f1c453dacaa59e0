"""The figures of a sweep's report."""

import numpy as np
from optuna.distributions import IntDistribution
from optuna.trial import TrialState
from optuna.visualization import plot_parallel_coordinate

from litlab.commands.sweep.figures import BEST, PRUNED, draw_curves, draw_history, figures
from litlab.commands.sweep.results import best, completed
from tests.litlab.commands.sweep.studies import STEPS, create, ended, spec, study

SPACE = {"model.width": IntDistribution(1, 64)}
WIDTH = {"model.width": 8}


def traces(figure):
    """What is drawn, by its name in the legend."""
    return {trace.name: trace for trace in figure.data}


def test_history_shows_all_trials_and_the_best_so_far(tmp_path):
    sweep = spec(tmp_path)
    made = study(sweep, 40)
    trials = made.trials
    drawn = traces(draw_history(sweep, made, 0))
    states = {state: [trial for trial in trials if trial.state == state] for state in TrialState}
    done = states[TrialState.COMPLETE]
    assert list(drawn[f"completed ({len(done)})"].x) == [trial.number for trial in done]
    assert list(drawn[f"completed ({len(done)})"].y) == [trial.value for trial in done]
    pruned = drawn[f"pruned ({len(states[TrialState.PRUNED])})"]
    assert list(pruned.y) == [
        trial.intermediate_values[max(trial.intermediate_values)] for trial in states[TrialState.PRUNED]
    ]
    failed = drawn[f"failed ({len(states[TrialState.FAIL])})"]
    assert list(failed.x) == [trial.number for trial in states[TrialState.FAIL]]
    assert "out of memory: &lt;1.5 GiB&gt; wanted" in failed.text[0]
    line = drawn["best so far"]
    assert line.y[-1] == best(sweep, trials)[0].value
    assert (np.diff(line.y) >= 0).all()
    assert line.x[-1] == trials[-1].number
    assert f"trial {done[0].number}<br>model.width=" in drawn[f"completed ({len(done)})"].text[0]


def test_history_leaves_out_trials_that_were_requeued(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, WIDTH, SPACE, state=TrialState.FAIL)
    ended(made, WIDTH, SPACE, values=[0.5], replaces=0)
    assert list(traces(draw_history(sweep, made, 0))) == ["completed (1)", "pruned (0)", "failed (0)", "best so far"]


def test_each_metric_has_its_history(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    made = study(sweep, 12)
    above, below = (traces(draw_history(sweep, made, index))["best so far"].y for index in range(2))
    assert (np.diff(above) >= 0).all()
    assert (np.diff(below) <= 0).all()


def test_curves_of_the_best_and_of_pruned_trials_stand_out(tmp_path):
    sweep = spec(tmp_path)
    made = study(sweep, 40)
    winner = best(sweep, made.trials)[0]
    curves = traces(draw_curves(sweep, made))
    bold = curves[f"Trial{winner.number}"]
    assert bold.line.color == BEST
    assert list(bold.y) == [winner.intermediate_values[step] for step in range(STEPS)]
    pruned = {name for name, curve in curves.items() if curve.line.color == PRUNED}
    assert pruned == {f"Trial{trial.number}" for trial in made.trials if trial.state == TrialState.PRUNED}


def test_pareto_fronts_of_all_pairs_of_metrics(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost", "rate"], directions=["maximize", "minimize", "minimize"])
    made = study(sweep, 30)
    drawn = {title: figure for title, _, figure in figures(sweep, made)}
    front = best(sweep, made.trials)
    for (x, y), title in {(0, 1): "val/acc against cost", (0, 2): "val/acc against rate"}.items():
        others, found = drawn[title].data
        assert sorted(zip(found.x, found.y, strict=True)) == sorted((t.values[x], t.values[y]) for t in front)
        assert len(others.x) == len(completed(made.trials)) - len(front)
    assert "cost against rate" in drawn
    assert not any(title.endswith("at each validation") for title in drawn)  # nothing was reported


def test_settings_that_only_some_trials_have_are_drawn(tmp_path):
    sweep = spec(tmp_path)
    made = study(sweep, 40)
    drawn = {title: figure for title, _, figure in figures(sweep, made)}
    parallel = drawn["Settings and values"]
    names = [text.replace("<br>", "") for text in parallel.layout.xaxis.ticktext]
    assert names == ["val/acc", *sorted(sweep.space)]
    for name, start in zip(names[1:], study_labels(made), strict=True):
        assert name.startswith(start)
    slices = drawn["val/acc over each setting"]
    titles = [slices.layout[f"xaxis{n or ''}"].title.text for n in (0, 2, 3, 4, 5)]
    assert set(titles) == set(sweep.space)


def study_labels(made) -> list[str]:
    """The names of settings as Optuna writes them, which are cut."""
    return [text.removesuffix("...") for text in plot_parallel_coordinate(made).layout.xaxis.ticktext[1:]]
