"""Splits, folds, windows, the calendar, the scale and the generated series, each for itself."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data.series.baselines import fit_ridge, measure
from litlab.data.series.calendar import make_calendar
from litlab.data.series.regular import Series
from litlab.data.series.windows import Windows, find_bounds, find_starts
from tests.litlab.data.conftest import refusal


def days(*rows: int, values: np.ndarray | None = None) -> Series:
    keys = [(name, time) for name, count in enumerate(rows) for time in pd.date_range("2024-01-01", periods=count)]
    values = np.random.default_rng(0).normal(size=(sum(rows), 1)) if values is None else values
    return Series(pd.DataFrame(values, pd.MultiIndex.from_tuples(keys), ["load"]), "D", False)


@pytest.mark.parametrize(
    ("split", "rows", "cuts"),
    [
        ([0.7, 0.1, 0.2], 100, (70, 80, 100)),
        ([0.7, 0.1, 0.2], 99, (69, 80, 99)),  # 69.3 and 19.8 rounded down, validation gets the rest
        ([0.29, 0.71, 0.0], 100, (29, 100, 100)),
        ([0.5, 0.0, 0.5], 99, (50, 50, 99)),
        (["2024-01-11", "2024-01-21", "2024-01-26"], 30, (10, 20, 25)),
        (["2024-01-10 12:00", "2024-01-20T00:00:01"], 30, (10, 20, 30)),
    ],
)
def test_splits(split, rows, cuts):
    assert find_bounds(days(rows), split, None).tolist() == [[0, *cuts]]
    second = find_bounds(days(50, rows), split, None)[1]  # each series by itself
    assert second.tolist() == [50, *(50 + cut for cut in cuts)]


@pytest.mark.parametrize(
    "split",
    [
        [0.7, 0.3], [0.7, 0.2, 0.2], [1.2, -0.4, 0.2], [0, 0.5, 0.5], ["2024-01-11"], ["2024-01-21", "2024-01-11"],
        ["2024-01-01", "2024-01-21"], ["2024-01-11", "2024-01-30 00:00:01"],
    ],
)  # fmt: skip
def test_impossible_splits(split):
    assert refusal(find_bounds, days(30), split, None).startswith(f"data.split: {split} is not valid; give")


def test_folds_are_blocks_of_time_that_follow_the_training():
    cuts = [find_bounds(days(60), [0.6, 0.2, 0.2], f"{number}/5")[0].tolist() for number in range(5)]
    assert cuts == [[0, 8, 10, 20], [0, 15, 20, 30], [0, 23, 30, 40], [0, 30, 40, 50], [0, 38, 50, 60]]
    several = find_bounds(days(60, 120), [0.8, 0.0, 0.2], "1/2").tolist()
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
        ([0, 14, 30, 40], "data: 14 train rows are too few for one window; give more rows, a smaller"),
        ([0, 20, 24, 40], "data: 4 val rows are too few for one window; "),
        ([0, 20, 30, 34], "data: 4 test rows are too few for one window; "),
    ):
        assert refusal(find_starts, np.array([bounds]), 10, 5, "data").startswith(message)


def test_a_batch_of_windows_is_what_slices_would_be():
    values, calendar = torch.randn(50, 3), torch.randn(50, 2)
    windows = Windows([values, calendar], torch.tensor([7, 9, 29, 30]), context_length=10, horizon=4)
    batch = windows[torch.tensor([2, 0, 3])]
    assert batch["start"].tolist() == [29, 7, 30]
    for row, start in enumerate((29, 7, 30)):
        assert batch["past"][row].equal(values[start : start + 10])
        assert batch["future"][row].equal(values[start + 10 : start + 14])
        assert batch["calendar"][row].equal(calendar[start : start + 14])
    assert {view.untyped_storage().data_ptr() for view in list(windows.views.values())[:2]} == {values.data_ptr()}
    last = Windows([values], torch.tensor([36]), context_length=10, horizon=4)
    assert list(last[torch.tensor([0])]) == ["past", "future", "start"]


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


@pytest.mark.parametrize("values", [[5.0, 5.0, 5.0], [0.0, 1e300, 1.0], [0.0, 1e-200, 0.0], [0.1, 0.1, 0.1]])
def test_columns_that_can_not_be_scaled(values):
    message = refusal(measure, days(3, values=np.array(values)[:, None]), np.array([[0, 3, 3, 3]]), 1, "data")
    assert message.startswith(f"data: column 'load' runs from {min(values):g} to {max(values):g} in the training rows")


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
