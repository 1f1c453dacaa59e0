"""Axes and labels of a sweep's pictures."""

import math
from pathlib import Path

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from litlab.sweep.scales import Setting, Values, label
from tests.litlab.sweep.studies import spec


def values_of(values: list[float], direction: str = "minimize") -> Values:
    sweep = spec(Path("logs"), metrics=["val/loss"], directions=[direction])
    return Values.fitting(sweep, np.array(values), 0)


def test_outliers_stand_at_the_edge():
    scale = values_of([0.5, 0.6, 0.7, 0.8, 1e6])
    assert scale.edge == 0.8
    assert scale.shown(np.array([0.5, 1e6, math.inf])).tolist() == [0.5, 0.8, 0.8]
    higher = values_of([0.9, 0.89, 0.87, 0.85, -50.0], "maximize")
    assert higher.edge == 0.85
    assert higher.beyond(np.array([0.95, 0.85, 0.1])).tolist() == [False, False, True]


def test_values_that_belong_together_are_all_drawn():
    assert values_of([1.0, 2.0, 3.0, 4.0]).edge == 4.0
    assert values_of([0.2]).edge == math.inf
    assert values_of([0.2, 0.2, 0.2], "maximize").edge == -math.inf


def test_the_title_says_where_the_metric_should_go():
    assert values_of([1.0]).title == "val/loss (minimize)"
    assert values_of([1.0], "maximize").title == "val/loss (maximize)"


@pytest.mark.parametrize(
    ("space", "values", "places"),
    [
        (FloatDistribution(1e-4, 1e-2, log=True), [1e-4, 1e-3, 1e-2], [0.0, 0.5, 1.0]),
        (IntDistribution(32, 128, step=32), [32, 80, 128], [0.0, 0.5, 1.0]),
        (IntDistribution(1, 100, log=True), [1, 10, 100], [0.0, 0.5, 1.0]),
        (CategoricalDistribution(["a", None]), ["a", None], [0.25, 0.75]),
        (IntDistribution(3, 3), [3], [0.5]),
    ],
)
def test_settings_stand_where_they_were_searched(space, values, places):
    np.testing.assert_allclose(Setting("x", space).positions(values), places)


@pytest.mark.parametrize(
    ("space", "texts"),
    [
        (FloatDistribution(1e-4, 1e-1, log=True), ["0.0001", "0.1", "0.001", "0.01"]),
        (FloatDistribution(2e-4, 9e-4, log=True), ["0.0002", "0.0009", "0.0005"]),
        (IntDistribution(1, 3), ["1", "3", "2"]),
        (IntDistribution(7, 7), ["7"]),
        (CategoricalDistribution([True, None, 0.5, "muon"]), ["true", "null", "0.5", "muon"]),
    ],
)
def test_marks_of_an_axis(space, texts):
    places, shown = Setting("x", space).ticks(6)
    assert shown == texts
    assert ((places >= 0) & (places <= 1)).all()
    assert len(places) == len(shown)


def test_marks_of_an_axis_have_room():
    for space in (FloatDistribution(0.01, 0.99), FloatDistribution(3e-7, 0.5, log=True), IntDistribution(1, 100000)):
        for most in (4, 6):
            places = np.sort(Setting("x", space).ticks(most)[0])
            assert 3 <= len(places) <= most
            assert np.diff(places).min() > 0.8 / most


def test_labels_break_where_names_do():
    assert label("model.optimizer.init_args.lr", 16) == "model.optimizer.\ninit_args.lr"
    assert label("model.width", 30) == "model.width"
    assert label("a" * 25, 10) == "a" * 10 + "\n" + "a" * 10 + "\n" + "a" * 5
    assert label("cost$_$", 30) == r"cost\$_\$"
    short = label("torchvision.transforms.v2.RandomResizedCrop", 10, 2)
    assert len(short.replace("\n", "")) <= 20
    assert short.startswith("torchvisi")
    assert short.endswith("sizedCrop")
