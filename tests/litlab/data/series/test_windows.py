"""Splits, folds, windows, the calendar, the scale and the generated series, each for itself."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data.series.baselines import fit_ridge, forecast_errors, linear_forecast, repeat_last, seasonal_naive
from litlab.data.series.calendar import make_calendar
from litlab.data.series.generated import GENERATED_COLUMNS, generate_series
from litlab.data.series.regular import Series, read_series
from litlab.data.series.scale import measure
from litlab.data.series.windows import Windows, check_split, find_bounds, find_starts
from tests.litlab.data.conftest import refusal


def days(*rows: int, values: np.ndarray | None = None) -> Series:
    times = pd.DatetimeIndex(np.concatenate([pd.date_range("2024-01-01", periods=count) for count in rows]))
    values = np.random.default_rng(0).normal(size=(sum(rows), 1)) if values is None else values
    names = [chr(97 + number) for number in range(len(rows))]
    return Series(times, values, ["load"], "D", False, names, np.cumsum(rows).tolist())


@pytest.mark.parametrize(
    ("split", "rows", "cuts"),
    [
        ([0.7, 0.1, 0.2], 100, (70, 80, 100)),
        ([0.7, 0.1, 0.2], 99, (69, 80, 99)),  # 69.3 and 19.8 rounded down, validation gets the rest
        ([0.29, 0.71, 0.0], 100, (29, 100, 100)),
        ([0.5, 0.0, 0.5], 99, (50, 50, 99)),
        (["2024-01-11", "2024-01-21"], 30, (10, 20, 30)),
        (["2024-01-11", "2024-01-21", "2024-01-26"], 30, (10, 20, 25)),
        (["2024-01-10 12:00", "2024-01-20T00:00:01"], 30, (10, 20, 30)),
    ],
)
def test_splits(split, rows, cuts):
    check_split(split)
    assert find_bounds(days(rows), split, None, "data").tolist() == [[0, *cuts]]
    several = find_bounds(days(rows, 2 * rows), split, None, "data").tolist()
    assert several[0] == [0, *cuts]
    if isinstance(split[0], float):
        assert several[1][0] == rows
        assert (
            np.subtract(several[1], rows)[1:].tolist() == find_bounds(days(2 * rows), split, None, "")[0, 1:].tolist()
        )


@pytest.mark.parametrize(
    "split",
    [
        [0.7, 0.3], [0.7, 0.2, 0.2], [1.2, -0.4, 0.2], [0, 0.5, 0.5], ["2024-01-11"], ["2024-01-21", "2024-01-11"],
        ["2024-01-11", "2024-01-11"],
    ],
)  # fmt: skip
def test_impossible_splits(split):
    assert refusal(check_split, split).startswith(f"data.split: {split} is not valid; give three shares")


def test_dates_that_are_none_or_outside():
    assert refusal(check_split, ["soon", "2024-01-21"]) == "data.split: 'soon' is no date; write it like 2024-01-31"
    for split in (["2024-01-01", "2024-01-21"], ["2024-01-11", "2024-01-30 00:00:01"]):
        message = refusal(find_bounds, days(30), split, None, "data")
        assert message.startswith("data.split: data is from 2024-01-01 00:00:00 to 2024-01-30 00:00:00, and not")


def test_folds_are_blocks_of_time_that_follow_the_training():
    cuts = [find_bounds(days(60), [0.6, 0.2, 0.2], f"{number}/5", "data")[0].tolist() for number in range(5)]
    assert cuts == [[0, 8, 10, 20], [0, 15, 20, 30], [0, 23, 30, 40], [0, 30, 40, 50], [0, 38, 50, 60]]
    several = find_bounds(days(60, 120), [0.8, 0.0, 0.2], "1/2", "data").tolist()
    assert several == [[0, 40, 40, 60], [60, 140, 140, 180]]


def test_windows_forecast_their_own_split_and_series_only():
    public = np.array([[0, 8640, 11520, 14400]])
    for horizon, count in ((96, 2785), (192, 2689), (336, 2545), (720, 2161)):
        for past in (24, 336, 720):
            starts = find_starts(public, past, horizon, "etth1")
            assert starts["test"].tolist() == list(range(11520 - past, 11520 - past + count))
    assert find_starts(public, 336, 96, "etth1")["train"].tolist() == list(range(8640 - 336 - 96 + 1))
    starts = find_starts(np.array([[0, 20, 30, 40], [40, 44, 60, 70], [70, 71, 71, 72]]), 6, 3, "data")
    assert starts["train"].tolist() == list(range(12))
    assert starts["val"].tolist() == [*range(14, 22), *range(40, 52)]
    assert starts["test"].tolist() == [*range(24, 32), *range(54, 62)]
    assert list(find_starts(np.array([[0, 50, 50, 90]]), 10, 5, "data")) == ["train", "test"]
    for bounds, message in (
        ([0, 14, 30, 40], "data: 14 train rows are too few for one window of 15; give more rows, a smaller"),
        ([0, 20, 24, 40], "data: 4 val rows are too few for one window of 5; "),
        ([0, 20, 30, 34], "data: 4 test rows are too few for one window of 5; "),
    ):
        assert refusal(find_starts, np.array([bounds]), 10, 5, "data").startswith(message)


def test_a_batch_of_windows_is_what_slices_would_be():
    values, calendar = torch.randn(50, 3), torch.randn(50, 2)
    windows = Windows(values, calendar, torch.tensor([7, 9, 29, 30]), context_length=10, horizon=4)
    batch = windows[torch.tensor([2, 0, 3])]
    assert batch["start"].tolist() == [29, 7, 30]
    for row, start in enumerate((29, 7, 30)):
        assert batch["past"][row].equal(values[start : start + 10])
        assert batch["future"][row].equal(values[start + 10 : start + 14])
        assert batch["calendar"][row].equal(calendar[start : start + 14])
    assert {view.untyped_storage().data_ptr() for view in list(windows.views.values())[:2]} == {values.data_ptr()}
    last = Windows(values, None, torch.tensor([36]), context_length=10, horizon=4, known=False)
    assert list(last[torch.tensor([0])]) == ["past", "start"]


def test_calendar_features_are_angles():
    times = pd.DatetimeIndex(["2024-02-11T06:45:00", "2023-12-31T23:15:00", "1969-12-29T00:00:00"])
    features = make_calendar(times, ["hour", "minute", "weekday", "day", "month"])
    assert features.dtype == torch.float32
    sine, cosine = features.double().view(3, 5, 2).unbind(2)
    shares = (torch.atan2(sine, cosine) / (2 * math.pi)) % 1
    expected = [[6 / 24, 45 / 60, 6 / 7, 10 / 29, 1 / 12], [23 / 24, 15 / 60, 6 / 7, 30 / 31, 11 / 12]]
    torch.testing.assert_close(shares[:2], torch.tensor(expected).double(), atol=1e-6, rtol=0)  # two Sundays
    torch.testing.assert_close(sine.square() + cosine.square(), torch.ones(3, 5).double())


def test_scale_and_naive_error_are_of_the_training_rows_of_all_series():
    values = np.array([[1.0], [3], [5], [3], [99], [7], [5], [9], [99]])
    found = measure(days(5, 4, values=values), np.array([[0, 4, 4, 5], [5, 8, 8, 9]]), 2, "data")
    train = np.array([1, 3, 5, 3, 7, 5, 9])
    assert found["mean"] == pytest.approx([train.mean()])
    assert found["scale"] == pytest.approx([train.std()])
    assert found["naive_error"] == pytest.approx([np.mean([4, 0, 2]) / train.std()])
    assert found["season"] == 2


@pytest.mark.parametrize("size", [1e32, 1e-32])
def test_numbers_of_any_size_are_scaled_right(size):
    series = days(50)
    found, plain = (
        measure(one, np.array([[0, 50, 50, 50]]), 1, "data") for one in (days(50, values=series.values * size), series)
    )
    assert found["naive_error"] == pytest.approx(plain["naive_error"])
    assert found["scale"] == pytest.approx([plain["scale"][0] * size])


@pytest.mark.parametrize("values", [[5.0, 5.0, 5.0], [0.0, 1e300, 1.0], [0.0, 1e-200, 0.0], [0.0, 1e38, 1.0]])
def test_columns_that_can_not_be_scaled(values):
    message = refusal(measure, days(3, values=np.array(values)[:, None]), np.array([[0, 3, 3, 3]]), 1, "data")
    assert message.startswith(f"data: column 'load' runs from {min(values):g} to {max(values):g} in the training rows")


def test_an_outlier_is_told(said):
    values = np.sin(np.arange(400.0))[:, None]
    bounds = np.array([[0, 400, 400, 400]])
    measure(days(400, values=values), bounds, 1, "data")
    assert said == []
    values[7] = 5000
    measure(days(400, values=values), bounds, 1, "data")
    assert said == ["warning: data: few values far from all others set the scale of 'load'"]


def test_the_generated_series_can_be_learned_but_not_by_repeating():
    assert generate_series().equals(generate_series())
    assert list(generate_series("time", "abcdefgh")) == ["time", *"abcdefgh"]
    series = read_series(generate_series(), "date")
    assert (series.values.shape, series.freq) == ((10_000, len(GENERATED_COLUMNS)), "h")
    past, horizon, bounds = 336, 24, np.array([[0, 7000, 8000, 10_000]])
    found = measure(series, bounds, 24, "generated")
    values = torch.tensor((series.values - found["mean"]) / found["scale"], dtype=torch.float32)
    weight = fit_ridge([values[:7000]], [values[7000 - past : 8000]], past, horizon)
    methods = {
        "last": lambda x: repeat_last(x, horizon),
        "naive": lambda x: seasonal_naive(x, horizon, 24),
        "ridge": lambda x: linear_forecast(x, weight),
    }
    windows = Windows(values, None, torch.arange(8000, 9600), past, horizon)
    errors = forecast_errors(methods, windows, torch.ones(7))
    assert errors["ridge"]["mse"] < errors["naive"]["mse"] / 4
    assert errors["ridge"]["mse"] < errors["last"]["mse"] / 4


def test_the_ridge_of_several_series_is_that_of_their_windows_together():
    first, second = torch.randn(40, 2).cumsum(0), torch.randn(30, 2).cumsum(0)
    windows = torch.cat([rows.unfold(0, 8, 1).flatten(0, 1) for rows in (first, second)]).double()
    x, y = windows[:, :5], windows[:, 5:]
    mean = x.mean(1, keepdim=True)
    x, y = x - mean, y - mean
    gram = x.T @ x
    penalty = 1e-2 * torch.linalg.eigvalsh(gram).mean()
    weight = torch.linalg.solve(gram + penalty * torch.eye(5), x.T @ y).T
    expected = weight - weight.mean(1, keepdim=True) + 1 / 5
    torch.testing.assert_close(fit_ridge([first, second], [], 5, 3), expected.float(), atol=1e-4, rtol=1e-3)
