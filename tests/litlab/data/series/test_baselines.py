"""Simple forecasts against their definitions, written out one window at a time."""

import pytest
import torch

from litlab.data.series.baselines import fit_ridge, forecast_errors, linear_forecast, repeat_last, seasonal_naive


def walk(rows: int, seed: int = 0, channels: int = 2) -> torch.Tensor:
    noise = torch.randn(rows, channels, generator=torch.Generator().manual_seed(seed))
    season = torch.sin(torch.arange(rows) * 0.9)[:, None]
    return (noise.cumsum(0) * 0.1 + season + noise).float()


def windows(rows: torch.Tensor, past: int, horizon: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All windows of all channels, one after the other: (window x channel, past) and (window x channel, horizon)."""
    cut = [rows[i : i + past + horizon].T for i in range(len(rows) - past - horizon + 1)]
    both = torch.cat(cut).double()
    return both[:, :past], both[:, past:]


def test_repeat_last():
    past = torch.tensor([[[1.0, 10.0], [2.0, 20.0]], [[3.0, 30.0], [4.0, 40.0]]])
    forecast = repeat_last(past, 3)
    assert forecast.shape == (2, 3, 2)
    assert forecast[0].tolist() == [[2, 20]] * 3
    assert forecast[1].tolist() == [[4, 40]] * 3


def test_seasonal_naive_repeats_the_last_season():
    past = torch.arange(7.0)[None, :, None].repeat(2, 1, 1)
    assert seasonal_naive(past, 8, season=3)[1, :, 0].tolist() == [4, 5, 6, 4, 5, 6, 4, 5]
    assert seasonal_naive(past, 2, season=7)[0, :, 0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="7 rows holds no season of 8"):
        seasonal_naive(past, 2, season=8)


def test_linear_forecast_treats_channels_alike():
    past, weight = torch.randn(4, 5, 3), torch.randn(2, 5)
    forecast = linear_forecast(past, weight)
    assert forecast.shape == (4, 2, 3)
    torch.testing.assert_close(forecast[1, :, 2], weight @ past[1, :, 2])


def test_ridge_is_the_solution_of_the_normal_equations_with_the_best_penalty():
    past, horizon = 6, 4
    train, val = walk(60), walk(45, seed=1)
    weight = fit_ridge(train, val, past, horizon)
    assert weight.shape == (horizon, past)
    assert weight.dtype == torch.float32
    x, y = windows(train, past, horizon)
    level = x.mean(1, keepdim=True)
    x, y = x - level, y - level
    gram = x.T @ x
    unit = gram.trace() / past
    vx, vy = windows(val, past, horizon)
    candidates = []
    for k in range(-12, 5):
        solved = torch.linalg.solve(gram + 10 ** (k / 2) * unit * torch.eye(past, dtype=torch.float64), x.T @ y).T
        whole = solved - solved.mean(1, keepdim=True) + 1 / past
        candidates.append(((vy - vx @ whole.T).square().mean().item(), whole))
    errors = [error for error, _ in candidates]
    best = errors.index(min(errors))
    assert 0 < best < len(errors) - 1  # else the choice would be no test
    torch.testing.assert_close(weight, candidates[best][1].float(), atol=1e-5, rtol=1e-4)


def test_ridge_finds_a_linear_rule_and_follows_the_level():
    """x(t) = 2 cos(w) x(t-1) - x(t-2): exact for sines, whatever their phase, amplitude and level."""
    time = torch.arange(400.0, dtype=torch.float64)
    train = torch.stack([torch.sin(0.3 * time), 3 * torch.cos(0.3 * time) + 5], dim=1)
    weight = fit_ridge(train, train[:100], 21, 10)  # 21 rows are a period, so that their mean is the level
    torch.testing.assert_close(weight.sum(1), torch.ones(10))
    other = 0.5 * torch.sin(0.3 * time + 1)[None, :31, None].float() + 100
    torch.testing.assert_close(linear_forecast(other[:, :21], weight), other[:, 21:], atol=0.02, rtol=0)


def test_ridge_without_validation_takes_the_usual_penalty():
    train = walk(60)
    x, y = windows(train, 6, 4)
    level = x.mean(1, keepdim=True)
    gram = (x - level).T @ (x - level)
    penalty = 0.01 * gram.trace() / 6 * torch.eye(6, dtype=torch.float64)
    solved = torch.linalg.solve(gram + penalty, (x - level).T @ (y - level)).T
    expected = solved - solved.mean(1, keepdim=True) + 1 / 6
    torch.testing.assert_close(fit_ridge(train, None, 6, 4), expected.float(), atol=1e-5, rtol=1e-4)


def test_ridge_of_a_single_row_repeats_it():
    assert fit_ridge(walk(30), walk(20), 1, 3).tolist() == [[1.0]] * 3


def test_errors_are_means_over_windows_of_batches_of_unequal_size():
    past = torch.zeros(3, 2, 2)
    future = torch.tensor([[[1.0, -4.0]], [[2.0, 0.0]], [[3.0, 2.0]]])
    batches = [(past[:2], future[:2]), (past[2:], future[2:])]
    errors = forecast_errors({"zero": lambda x: repeat_last(x, 1)}, batches, torch.tensor([2.0, 0.5]))
    assert errors["zero"]["mse"] == pytest.approx((1 + 4 + 9 + 16 + 4) / 6)
    assert errors["zero"]["mae"] == pytest.approx(12 / 6)
    assert errors["zero"]["mase"] == pytest.approx((6 / 2 + 6 / 0.5) / 6)
