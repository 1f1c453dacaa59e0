"""RegressionErrors."""

import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from torchmetrics import MetricCollection

from litlab.metrics import RegressionErrors, StageMetrics
from litlab.metrics.state import load_metric_states, metric_states


def test_errors_are_those_of_scikit_learn_whatever_the_batches():
    torch.manual_seed(0)
    target = torch.randn(100, 2) * torch.tensor([3.0, 50.0]) + torch.tensor([5.0, -7.0])
    predicted = target + torch.randn(100, 2) * torch.tensor([1.0, 20.0])
    metric = RegressionErrors(["price", "size of it"])
    for rows in torch.arange(100).split(7):
        metric.update(predicted[rows], target[rows])
    values = metric.compute()
    assert list(values) == [f"{name}_{end}" for name in ("mse", "mae", "r2") for end in ("price", "size of it")]
    for place, end in enumerate(("price", "size of it")):
        pair = target[:, place].double(), predicted[:, place].double()
        for name, score in (("mse", mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)):
            assert values[f"{name}_{end}"].item() == pytest.approx(score(*pair), rel=1e-6)
            assert values[f"{name}_{end}"].shape == ()


def test_r2_is_right_far_from_zero_over_many_rows():
    """In float32, the difference of the sums would be noise."""
    generator = torch.Generator().manual_seed(0)
    target = 2000 + 5 * torch.randn(200_000, 1, generator=generator)
    predicted = target + torch.randn(200_000, 1, generator=generator)
    metric = RegressionErrors(["year"])
    for rows in target.new_ones(200_000).nonzero().flatten().split(3200):
        metric.update(predicted[rows], target[rows])
    assert metric.compute()["r2"].item() == pytest.approx(r2_score(target.double(), predicted.double()), rel=1e-6)
    assert metric.sums.dtype == torch.float32


def test_a_target_that_never_changes_has_no_r2():
    metric = RegressionErrors(["one"])
    metric.update(torch.tensor([[1.0], [2.0]]), torch.full((2, 1), 0.1))
    assert metric.compute()["r2"].isnan()
    assert metric.compute()["mae"].item() == pytest.approx(1.4)


def test_sums_go_on_in_another_process_to_the_same_bits():
    torch.manual_seed(0)
    batches = [(torch.randn(32, 1) * 1e3, torch.randn(32, 1) * 1e3) for _ in range(60)]

    def stage() -> StageMetrics:
        metrics = StageMetrics(MetricCollection({"errors": RegressionErrors(["price"])}), "train")
        metrics.reset(torch.device("cpu"))
        return metrics

    whole, first, second = stage(), stage(), stage()
    for number, (predicted, target) in enumerate(batches):
        if number == 23:
            load_metric_states(second, metric_states(first), torch.device("cpu"))
        for metrics in (whole, first if number < 23 else second):
            metrics.add((predicted - target).square().mean(), predicted, target)
    one, other = (metrics.compute(lambda sums: sums) for metrics in (whole, second))
    assert list(one) == ["train/loss", "train/mse", "train/mae", "train/r2"]
    assert all(torch.equal(one[name], other[name]) for name in one)
