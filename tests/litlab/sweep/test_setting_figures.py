"""Pictures of the searched settings."""

from itertools import combinations

import numpy as np
import optuna
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from litlab.sweep.results import best, completed
from litlab.sweep.setting_figures import draw_importances, draw_parallel, draw_slices
from tests.litlab.sweep.studies import create, ended, spec, study

LONG = "model.network.init_args.encoder.init_args.attention_dropout_probability_of_the_last_layers"
CHOICES = ["torchvision.transforms.v2.RandomResizedCropAndFlip", "trivial_augment_wide", "autoaugment", "none", "mixup"]
SPACE = {
    LONG: FloatDistribution(0.0, 0.5),
    "data.transforms": CategoricalDistribution(CHOICES),
    **{f"model.block_{number}.rate": FloatDistribution(1e-6, 1.0, log=True) for number in range(12)},
    "trainer.$cost$_x": IntDistribution(1, 100000, log=True),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """500 trials of 15 settings, the last of which only those with one choice have."""
    sweep = spec(tmp_path_factory.mktemp("sweep"), metrics=["val/loss"], directions=["minimize"])
    made, rng = create(sweep), np.random.default_rng(0)
    sampler = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(500):
        params = sampler.ask(SPACE).params
        space = dict(SPACE)
        if params["data.transforms"] != "none":
            del params["trainer.$cost$_x"], space["trainer.$cost$_x"]
        ended(made, params, space, values=[float(rng.lognormal())], reported={0: 1.0})
    return sweep, made.trials


def texts(figure):
    """The texts that are drawn, with their boxes in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = []
    for axes in figure.axes:
        if axes.axison:
            found += [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels()]
            low, high = sorted(axes.get_ylim())
            found += [label for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high]
        found += axes.texts
    found = [label for label in found if label.get_text() and label.get_visible()]
    return {label: label.get_window_extent(canvas.get_renderer()) for label in found}


def overlaps(figure) -> list[tuple[str, str]]:
    found = texts(figure)
    return [
        (one.get_text(), other.get_text())
        for one, other in combinations(found, 2)
        if found[one].padded(-1).overlaps(found[other].padded(-1))
    ]


def test_importances_largest_on_top():
    figure = draw_importances({"val/acc": {LONG: 0.25, "c": 0.0, "model.optimizer.lr": 0.75}}, "what they mean")
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [0.75, 0.25, 0.0]
    assert axes.yaxis_inverted()
    assert [text.get_text() for text in axes.texts] == ["75.0%", "25.0%", "0.0%"]
    assert overlaps(figure) == []
    assert figure.get_suptitle() == "what they mean"


def test_importances_of_several_metrics_stand_beside_each_other():
    figure = draw_importances({"val/acc": {"a": 0.1, "b": 0.9}, "cost": {"b": 0.3, "a": 0.7}}, "what they mean")
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [0.9, 0.1, 0.3, 0.7]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["val/acc", "cost"]
    assert overlaps(figure) == []


def test_importances_that_are_not_known_are_a_sentence():
    figure = draw_importances({}, "too few trials")
    assert figure.get_suptitle() == "too few trials"
    assert not figure.axes[0].axison


def test_parallel_has_a_line_for_each_completed_trial(forty):
    sweep, trials = forty
    figure = draw_parallel(sweep, trials)
    axes = figure.axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [*sweep.space, "val/acc (maximize)"]
    (lines,) = [collection for collection in axes.collections if len(collection.get_paths()) == len(completed(trials))]
    winner = best(sweep, trials)[0]
    assert figure.legends[0].get_texts()[0].get_text() == f"best val/acc (trial {winner.number})"
    path = lines.get_paths()[-1].vertices  # the best is drawn last
    assert path[:, 1].tolist() == list(range(6))
    assert path[0, 0] == (winner.params["model.width"] - 32) / (256 - 32)
    assert path[2, 0] == pytest.approx(np.log10(winner.params["model.optimizer.lr"] / 1e-4) / 3)
    assert path[5, 0] == 1.0  # the highest value


def test_parallel_puts_trials_without_a_setting_aside(forty):
    sweep, trials = forty
    figure = draw_parallel(sweep, trials)
    done = sorted(completed(trials), key=lambda trial: trial.value)
    (lines,) = [group for group in figure.axes[0].collections if len(group.get_paths()) == len(done)]
    name = "model.optimizer.init_args.momentum"
    row = list(sweep.space).index(name)
    for trial, path in zip(done, lines.get_paths(), strict=True):
        place = path.vertices[row, 0]
        if name in trial.params:
            assert place == pytest.approx((trial.params[name] - 0.5) / 0.49)
        else:
            assert place > 1.05
    assert {name in trial.params for trial in done} == {True, False}
    assert [text.get_text() for text in figure.axes[0].texts].count("unset") == 1


def test_the_best_of_a_loss_is_the_lowest(large):
    sweep, trials = large
    figure = draw_parallel(sweep, trials)
    (lines,) = [group for group in figure.axes[0].collections if len(group.get_paths()) == 500]
    assert lines.get_paths()[-1].vertices[-1, 0] == 0.0
    assert lines.get_paths()[0].vertices[-1, 0] == 1.0
    dark, light = lines.get_colors()[-1, :3].mean(), lines.get_colors()[0, :3].mean()
    assert dark < light


def test_no_text_overlaps_another_in_a_large_sweep(large):
    assert overlaps(draw_parallel(*large)) == []
    assert overlaps(draw_slices(*large)) == []


def test_slices_show_each_setting(forty):
    sweep, trials = forty
    figure = draw_slices(sweep, trials)
    panels = {axes.get_xlabel().replace("\n", ""): axes for axes in figure.axes if axes.get_xlabel()}
    assert list(panels) == list(sweep.space)
    assert overlaps(figure) == []
    done, winner = completed(trials), best(sweep, trials)[0]
    for name, axes in panels.items():
        having = sum(name in trial.params for trial in done)
        groups = {group.get_label(): np.asarray(group.get_offsets()) for group in axes.collections}
        beyond = len(groups["worse than drawn"]) if "worse than drawn" in groups else 0
        assert having - beyond <= len(groups["completed"]) <= having
        assert groups["best"][0, 1] == winner.value
    rate = np.asarray(panels["model.optimizer.lr"].collections[-1].get_offsets())
    assert rate[0, 0] == pytest.approx(np.log10(winner.params["model.optimizer.lr"] / 1e-4) / 3)


def test_slices_of_several_metrics(tmp_path):
    sweep = spec(tmp_path, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    trials = study(sweep, 20).trials
    figure = draw_slices(sweep, trials)
    labels = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel().endswith("imize)")]
    assert labels == ["val/acc (maximize)"] * 2 + ["cost (minimize)"] * 2
    figure.draw_without_rendering()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["completed", "Pareto front"]


@pytest.mark.parametrize("count", [1, 4])
def test_one_setting_and_constant_values(tmp_path, count):
    sweep = spec(tmp_path)
    made = create(sweep)
    for number in range(count):
        ended(made, {"x": number}, {"x": IntDistribution(0, 3)}, values=[0.5])
    ended(made, {"x": 1}, {"x": IntDistribution(0, 3)}, state=TrialState.PRUNED, reported={0: 0.4})
    for figure in (draw_parallel(sweep, made.trials), draw_slices(sweep, made.trials)):
        FigureCanvasAgg(figure).draw()
    assert "0.5" in [text.get_text() for text in draw_parallel(sweep, made.trials).axes[0].texts]
