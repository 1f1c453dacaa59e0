"""Names of metrics."""

import pytest

from litlab.util import results


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("val/acc", 1), ("test/f1", 1), ("test/mase", -1), ("val/mse_price", -1), ("val/my_score", 0),
        ("val/coverage", 0), ("test/interval_width", 0), ("val/macro_f1", 0),
    ],
)  # fmt: skip
def test_which_value_is_better_by_name(name, better):
    assert results.direction(name, [{}]) == better


def test_what_was_monitored_says_it_better():
    runs = [{}, {"best": {"monitor": "val/coverage", "mode": "max"}}]
    assert results.direction("test/coverage", runs) == 1
    assert results.direction("test/loss", [{"best": {"monitor": "val/loss", "mode": "max"}}]) == 1


def test_the_test_metric_that_belongs_to_the_monitored_one():
    test = {"test/loss": 1.0, "test/acc": 0.5}
    assert results.of_test({"test": test, "best": {"monitor": "val/acc"}}) == ("test/acc", 0.5)
    assert results.of_test({"test": test, "best": {"monitor": "val/f1"}}) == ("test/loss", 1.0)
    assert results.of_test({"test": test}) == ("test/loss", 1.0)
    assert results.of_test({"best": {"monitor": "val/acc"}}) is None


def test_values_hold_the_best_where_it_was_monitored_and_nothing_unknown():
    metrics = {"val": {"val/acc": 0.4, "val/loss": None}, "test": None, "best": {"monitor": "val/acc", "value": 0.5}}
    assert results.values(metrics) == {"val/acc": 0.5}
