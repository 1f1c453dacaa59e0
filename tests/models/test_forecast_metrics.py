"""ForecastMetrics and MeanLoss, against all windows at once."""

import pytest
import torch

from project.models.forecast_metrics import ForecastMetrics, MeanLoss

CPU = torch.device("cpu")


def test_metrics_are_exact_by_step_and_target():
    torch.manual_seed(0)
    metrics = ForecastMetrics((6, 2))
    batches = [torch.randn(2, n, 6, 2) for n in (4, 4, 1)]
    for forecast, future in batches:
        metrics.add(forecast, future, (forecast - 1, forecast + 0.5))
    forecast, future = torch.cat(batches, dim=1)
    error = future - forecast
    inside = ((error >= -1) & (error <= 0.5)).float()
    expected = {"mse": error**2, "mae": error.abs(), "coverage": inside, "width": torch.full_like(error, 1.5)}
    for means, dims in ((metrics.means(), 0), (metrics.per_step(), (0, 2)), (metrics.per_target(), (0, 1))):
        assert means.keys() == expected.keys()
        for name, values in expected.items():
            torch.testing.assert_close(means[name], values.mean(dim=dims))
    metrics.reset(CPU)
    metrics.add(torch.zeros(1, 6, 2), torch.full((1, 6, 2), 2.0))
    assert {name: mean.unique().tolist() for name, mean in metrics.means().items()} == {"mse": [4.0], "mae": [2.0]}


def test_the_truth_at_an_end_is_covered():
    metrics = ForecastMetrics((1, 1))
    for end in (0.0, 1.0):
        metrics.add(torch.zeros(1, 1, 1), torch.full((1, 1, 1), end), (torch.zeros(1, 1, 1), torch.ones(1, 1, 1)))
    assert metrics.means()["coverage"] == 1


@pytest.mark.parametrize("flush_every", [1, 2, 50])
def test_mean_loss_weighs_by_samples(flush_every):
    mean = MeanLoss(flush_every)
    for loss, samples in ((1.0, 3), (2.0, 1), (4.0, 4)):
        mean.add(torch.tensor(loss), samples)
    assert mean.compute(lambda sums: sums) == (3 + 2 + 16) / 8
    mean.add(torch.tensor(6.0), 2)
    assert mean.flush() == 6  # of what was not flushed yet
    assert mean.compute(lambda sums: sums) == (3 + 2 + 16 + 12) / 10
    assert mean.compute(lambda sums: sums) == (3 + 2 + 16 + 12) / 10
    mean.reset(CPU)
    mean.add(torch.tensor(float("nan")), 1)
    assert mean.compute(lambda sums: sums).isnan()


def test_recent_loss_weighs_by_samples_too():
    mean = MeanLoss()
    for loss, samples in ((1.0, 3), (2.0, 1)):
        mean.add(torch.tensor(loss), samples)
    assert mean.flush() == 1.25
