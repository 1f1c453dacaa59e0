"""Metrics of runs: names, directions, mean and spread over seeds."""

import pytest
from scipy import stats

from litlab.runs import results


def test_what_was_monitored_says_which_value_is_better():
    assert results.direction("test/loss", [{}, {"best": {"monitor": "val/loss", "mode": "max"}}]) == 1


def test_the_interval_is_that_of_students_t():
    values = [0.887, 0.8906, 0.8857]
    spread, error = results.spread(values), stats.sem(values)
    assert spread.deviation == pytest.approx(3**0.5 * error)
    assert spread.interval == pytest.approx(stats.t.interval(0.95, 2, spread.mean, error))
    assert results.cells(spread) == ["0.8878", "0.0025", "0.8815 to 0.8941", "3"]
    assert results.cells(results.spread([0.5])) == ["0.5", "-", "-", "1"]
    assert results.plus_minus(0.88712, 0.00213) == "0.8871 ± 0.0021"
