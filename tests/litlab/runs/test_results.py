"""Metrics of runs: names, directions, mean and spread over seeds."""

import math

import pytest
from scipy import stats

from litlab.runs import results
from litlab.runs.results import cells, plus_minus, spread


def test_which_value_is_better():
    """What was monitored says it better than the name."""
    assert [results.direction(name, [{}]) for name in ("test/f1", "val/mse_price", "val/coverage")] == [1, -1, 0]
    runs = [{}, {"best": {"monitor": "val/loss", "mode": "max"}}]
    assert results.direction("test/loss", runs) == 1


def test_the_test_metric_that_belongs_to_the_monitored_one():
    test = {"test/loss": 1.0, "test/acc": 0.5}
    assert results.test_name({"test": test, "best": {"monitor": "val/acc"}}) == "test/acc"
    assert results.test_name({"test": test, "best": {"monitor": "val/f1"}}) == "test/loss"
    assert results.test_name({"best": {"monitor": "val/acc"}}) is None


@pytest.mark.parametrize("values", [[0.81, 0.83], list(range(40))])
def test_the_interval_is_that_of_students_t(values):
    found = spread(values)
    error = stats.sem(values)
    assert found.count == len(values)
    assert found.deviation == pytest.approx(math.sqrt(len(values)) * error, rel=1e-12)
    assert found.interval == pytest.approx(stats.t.interval(0.95, len(values) - 1, found.mean, error), rel=1e-12)


def test_as_text():
    assert plus_minus(0.88712, 0.00213) == "0.8871 ± 0.0021"
    assert plus_minus(0.88712, None) == "0.8871"
    assert cells(spread([0.887, 0.8906, 0.8857])) == ["0.8878", "0.0025", "0.8815 to 0.8941", "3"]
    assert cells(spread([0.5])) == ["0.5", "-", "-", "1"]
