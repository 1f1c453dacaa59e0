"""ForecastMetrics, against all windows at once."""

import torch

from litlab.metrics.forecast_metrics import ForecastMetrics

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
    expected = {"mse": error**2, "mae": error.abs(), "coverage": inside, "interval_width": torch.full_like(error, 1.5)}
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
