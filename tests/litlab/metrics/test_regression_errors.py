"""RegressionErrors."""

import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from litlab.metrics.regression_errors import RegressionErrors


@pytest.mark.parametrize("unit", [1.0, 1e-5])
def test_errors_are_those_of_scikit_learn_whatever_the_batches(unit):
    """Also far from zero: in float32 the difference of the sums would be noise."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.tensor([2000.0, -7.0]) + torch.randn(10_000, 2, generator=generator) * torch.tensor([5, 50])) * unit
    predicted = target + torch.randn(10_000, 2, generator=generator) * unit
    metric = RegressionErrors(["year", "size of it"])
    for rows in torch.arange(10_000).split(777):
        metric.update(predicted[rows], target[rows])
    values = metric.compute()
    assert len(values) == 6
    for place, end in enumerate(("year", "size of it")):
        pair = target[:, place].double(), predicted[:, place].double()
        for name, score in (("mse", mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)):
            assert values[f"{name}_{end}"].item() == pytest.approx(score(*pair), rel=1e-6)


def test_a_target_that_never_changes_has_no_r2():
    metric = RegressionErrors(["one"])
    metric.update(torch.tensor([[1.0], [2.0]]), torch.full((2, 1), 0.1))
    assert metric.compute()["r2"].isnan()
    assert metric.compute()["mae"].item() == pytest.approx(1.4)
