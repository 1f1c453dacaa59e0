"""Mean and spread of metrics over seeds."""

import math

import pytest
from scipy import stats

from litlab.util.spread import cells, plus_minus, spread, spreads


@pytest.mark.parametrize("values", [[0.81, 0.83], [0.887, 0.8906, 0.8857], [1e-9, 3e-9, 2e-9, 9e-9], list(range(40))])
def test_the_interval_is_that_of_students_t(values):
    found = spread(values)
    error = stats.sem(values)
    assert found.count == len(values)
    assert found.deviation == pytest.approx(math.sqrt(len(values)) * error, rel=1e-12)
    assert found.interval == pytest.approx(stats.t.interval(0.95, len(values) - 1, found.mean, error), rel=1e-12)


def test_the_same_value_each_time():
    assert spread([0.5, 0.5, 0.5]).interval == (0.5, 0.5)


def test_one_value_has_no_spread():
    found = spread([0.5])
    assert (found.mean, found.deviation, found.interval) == (0.5, None, None)


def test_metrics_are_those_of_the_runs_that_have_them():
    best = {"monitor": "val/acc", "mode": "max"}
    runs = [
        {"val": {"val/acc": 0.1, "val/loss": 2.0}, "test": {"test/acc": 0.7}, "best": {**best, "value": 0.8}},
        {"val": {"val/acc": 0.1, "val/loss": None}, "test": None, "best": {**best, "value": 0.9}},
        {"val": {"val/loss": math.nan}, "test": {"test/acc": math.inf}},
    ]
    found = spreads(runs)
    assert list(found) == ["val/acc", "val/loss", "test/acc"]
    assert found["val/acc"].mean == pytest.approx(0.85)  # of the best checkpoints
    assert [found[name].count for name in found] == [2, 1, 1]


def test_as_text():
    assert plus_minus(0.88712, 0.00213) == "0.8871 ± 0.0021"
    assert plus_minus(0.88712, None) == "0.8871"
    assert cells(spread([0.887, 0.8906, 0.8857])) == ["0.8878", "0.0025", "0.8815 to 0.8941", "3"]
    assert cells(spread([0.5])) == ["0.5", "-", "-", "1"]
