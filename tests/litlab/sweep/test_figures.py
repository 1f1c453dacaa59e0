"""Pictures of what a sweep came to."""

import math

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from optuna.distributions import IntDistribution
from optuna.trial import TrialState

from litlab.sweep.figures import draw_curves, draw_history, draw_pareto
from litlab.sweep.results import best, completed
from litlab.sweep.scales import BEST
from tests.litlab.sweep.studies import STEPS, create, ended, spec, study

SPACE = {"model.width": IntDistribution(1, 64)}
WIDTH = {"model.width": 8}


def legend(figure) -> list[str]:
    FigureCanvasAgg(figure).draw()
    return [text.get_text() for text in figure.legends[0].get_texts()]


def points(axes, name: str) -> np.ndarray:
    """What a legend's entry stands for, shape (point, 2)."""
    found = [dots.get_offsets() for dots in axes.collections if dots.get_label() == name]
    return np.concatenate([np.asarray(each) for each in found])


def test_history_shows_all_trials_and_the_best_so_far(forty):
    sweep, trials = forty
    figure = draw_history(sweep, trials)
    (axes,) = figure.axes
    done = completed(trials)
    numbers = {state: sum(trial.state == state for trial in trials) for state in TrialState}
    assert {f"completed ({len(done)})", f"pruned ({numbers[TrialState.PRUNED]})", "best so far"} <= set(legend(figure))
    assert f"failed ({numbers[TrialState.FAIL]})" in legend(figure)
    dots = points(axes, f"completed ({len(done)})")
    drawn = {int(x): y for x, y in dots}
    assert all(drawn[trial.number] == trial.value for trial in done if trial.number in drawn)
    assert drawn[best(sweep, trials)[0].number] == max(trial.value for trial in done)
    (line,) = axes.lines
    assert line.get_ydata()[-1] == best(sweep, trials)[0].value
    assert (np.diff(line.get_ydata()) >= 0).all()
    assert line.get_xdata()[-1] == trials[-1].number
    assert axes.get_ylabel() == "val/acc (maximize)"


def test_history_of_a_loss_falls_and_leaves_outliers_at_the_edge(tmp_path):
    sweep = spec(tmp_path, metrics=["val/loss"], directions=["minimize"])
    made = create(sweep)
    for value in (1e6, 0.5, 0.6, 0.4, 0.7, 0.65):
        ended(made, WIDTH, SPACE, values=[value])
    ended(made, WIDTH, SPACE, state=TrialState.PRUNED, reported={0: math.inf})
    figure = draw_history(sweep, made.trials)
    (axes,) = figure.axes
    assert axes.lines[0].get_ydata().tolist() == [0.7, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4]
    assert points(axes, "worse than drawn").tolist() == [[0, 0.7], [6, 0.7]]
    assert legend(figure) == ["completed (6)", "worse than drawn", "pruned (1)", "best so far"]
    assert axes.get_ylim()[1] < 1


def test_history_leaves_out_trials_that_were_taken_up_again(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, WIDTH, SPACE, state=TrialState.FAIL, replaced_by=1)
    ended(made, WIDTH, SPACE, values=[0.5], replaces=0)
    assert legend(draw_history(sweep, made.trials)) == ["completed (1)", "best so far"]


def test_history_has_a_panel_for_each_metric(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    figure = draw_history(sweep, study(sweep, 12).trials)
    assert [axes.get_ylabel() for axes in figure.axes] == ["val/acc (maximize)", "cost (minimize)"]
    above, below = (axes.lines[0].get_ydata() for axes in figure.axes)
    assert (np.diff(above) >= 0).all()
    assert (np.diff(below) <= 0).all()


def test_curves_of_all_trials(forty):
    sweep, trials = forty
    figure = draw_curves(sweep, trials)
    assert figure is not None
    (axes,) = figure.axes
    winner = best(sweep, trials)[0]
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    names = legend(figure)
    assert f"best (trial {winner.number})" in names
    assert f"pruned ({len(pruned)})" in names
    assert f"completed ({len(completed(trials)) - 1})" in names
    curves = [line for line in axes.lines if len(line.get_xdata()) == STEPS]
    (bold,) = [line for line in curves if to_hex(line.get_color()) == BEST]
    assert bold.get_xdata().tolist() == list(range(1, STEPS + 1))
    assert bold.get_ydata().tolist() == [winner.intermediate_values[step] for step in range(STEPS)]
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata()) == 1]
    assert len(crosses) == len(pruned)


def test_no_curves_where_nothing_was_reported(tmp_path):
    sweep = spec(tmp_path)
    made = create(sweep)
    ended(made, WIDTH, SPACE, values=[0.5])
    assert draw_curves(sweep, made.trials) is None
    ended(made, WIDTH, SPACE, state=TrialState.FAIL, reported={0: math.nan})
    assert draw_curves(sweep, made.trials) is None


def test_diverged_curves_leave_room_for_the_others(tmp_path):
    sweep = spec(tmp_path, metrics=["val/loss"], directions=["minimize"])
    made = create(sweep)
    for number in range(8):
        ended(made, WIDTH, SPACE, values=[0.5], reported={0: 1.0 + number / 10, 1: 0.5 + number / 10})
    ended(made, WIDTH, SPACE, state=TrialState.FAIL, reported={0: 2.0, 1: 1e9, 2: math.nan})
    figure = draw_curves(sweep, made.trials)
    assert figure is not None
    assert 2.0 < figure.axes[0].get_ylim()[1] < 3.0
    assert "failed (1)" in legend(figure)


def test_pareto_front_of_two_metrics(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    trials = study(sweep, 40).trials
    figure = draw_pareto(sweep, trials)
    (axes,) = figure.axes
    front = best(sweep, trials)
    assert legend(figure) == [f"dominated ({len(completed(trials)) - len(front)})", f"Pareto front ({len(front)})"]
    drawn = points(axes, f"Pareto front ({len(front)})")
    assert drawn.tolist() == [trial.values for trial in front]
    assert {text.get_text() for text in axes.texts} <= {str(trial.number) for trial in front}
    assert axes.texts
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("val/acc (maximize)", "cost (minimize)")


def test_pareto_front_of_three_metrics_is_drawn_by_pairs(tmp_path):
    directions = ["maximize", "minimize", "minimize"]
    sweep = spec(tmp_path, metrics=["val/acc", "cost", "rate"], directions=directions)
    figure = draw_pareto(sweep, study(sweep, 10).trials)
    labels = [(axes.get_xlabel().split()[0], axes.get_ylabel().split()[0]) for axes in figure.axes]
    assert labels == [("val/acc", "cost"), ("val/acc", "rate"), ("cost", "rate")]
