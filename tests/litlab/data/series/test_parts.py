"""Calendar features, splits, windows, the scaler and the generated series, each for itself."""

import math
import re

import numpy as np
import pytest
import torch

from litlab.data.series.baselines import forecast_errors, linear_forecast, repeat_last, seasonal_naive
from litlab.data.series.covariates import calendar_features
from litlab.data.series.generated import GENERATED_COLUMNS, generated_series
from litlab.data.series.scaler import fit_scaler
from litlab.data.series.split import check_split, split_rows, split_windows
from litlab.data.series.step import Step
from litlab.data.series.timeline import Series
from litlab.data.series.windows import Windows
from litlab.errors import UserError


def angle(features: torch.Tensor, number: int) -> list[float]:
    """Share of a full turn of one covariate."""
    sine, cosine = features[:, 2 * number], features[:, 2 * number + 1]
    return ((torch.atan2(sine, cosine) / (2 * math.pi)) % 1).tolist()


def test_calendar_features_are_angles():
    times = np.array(["2024-02-11T06:45:00", "2023-12-31T23:15:00", "1969-12-29T00:00:00"], dtype="datetime64[s]")
    features = calendar_features(times, ["hour", "minute", "weekday", "day", "month"])
    assert features.shape == (3, 10)
    assert features.dtype == torch.float32
    assert angle(features, 0) == pytest.approx([6 / 24, 23 / 24, 0], abs=1e-6)
    assert angle(features, 1) == pytest.approx([45 / 60, 15 / 60, 0], abs=1e-6)
    assert angle(features, 2) == pytest.approx([6 / 7, 6 / 7, 0], abs=1e-6)  # two Sundays and a Monday
    assert angle(features, 3) == pytest.approx([10 / 29, 30 / 31, 28 / 31], abs=1e-6)
    assert angle(features, 4) == pytest.approx([1 / 12, 11 / 12, 11 / 12], abs=1e-6)
    torch.testing.assert_close(features.view(3, 5, 2).square().sum(2), torch.ones(3, 5))
    assert calendar_features(times, []) is None


THREE = "give three shares (train, val, test) that sum to 1, or two or three dates"


def days(rows: int, utc: bool = False) -> Series:
    times = np.datetime64("2024-01-01T00:00:00") + np.arange(rows) * np.timedelta64(1, "D")
    return Series(times, np.zeros((rows, 1)), ["load"], Step(86_400), utc)


@pytest.mark.parametrize(
    ("split", "rows", "ends"),
    [
        ([0.7, 0.1, 0.2], 100, (70, 80, 100)),
        ([0.7, 0.1, 0.2], 99, (69, 80, 99)),  # 69.3 and 19.8 rounded down, validation gets the rest
        ([0.29, 0.71, 0.0], 100, (29, 100, 100)),
        ([0.5, 0.0, 0.5], 99, (50, 50, 99)),
        ([1, 0, 0], 99, (99, 99, 99)),
        (["2024-01-11", "2024-01-21"], 30, (10, 20, 30)),
        (["2024-01-11", "2024-01-21", "2024-01-26"], 30, (10, 20, 25)),
        (["2024-01-11", "2024-01-21", "2024-01-31"], 30, (10, 20, 30)),
        (["2024-01-10 12:00", "2024-01-20T00:00:01"], 30, (10, 20, 30)),
    ],
)
def test_splits(split, rows, ends):
    check_split(split)
    assert split_rows(split, days(rows), "data") == ends


def test_dates_with_offsets_are_for_times_with_offsets():
    split = ["2024-01-11T01:00+01:00", "2024-01-21"]
    assert split_rows(split, days(30, utc=True), "data") == (10, 20, 30)
    with pytest.raises(UserError, match=r"2024-01-11T01:00\+01:00 has a UTC offset, the times of data have none"):
        split_rows(split, days(30), "data")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ([0.7, 0.3], "data.split: [0.7, 0.3] is not valid; " + THREE),
        ([0.7, 0.2, 0.2], "data.split: [0.7, 0.2, 0.2] is not valid; " + THREE),
        ([1.2, -0.4, 0.2], "data.split: [1.2, -0.4, 0.2] is not valid; " + THREE),
        ([0, 0.5, 0.5], "data.split: no training rows; give train a share above 0"),
        (["2024-01-11"], "data.split: 1 dates; give that of the first validation row, that of the first test row, "
            "and optionally "
            "that of the first row after the test"),
        (["2024-01-21", "2024-01-11"], "data.split: 2024-01-21, 2024-01-11 are not in ascending order; sort them"),
        (["2024-01-11", "2024-01-11"], "data.split: 2024-01-11, 2024-01-11 are not in ascending order; sort them"),
        (["11.1.2024", "2024-01-21"], "data.split: '11.1.2024' is not a date (Invalid isoformat string: '11.1.2024'); "
            "write it like 2024-01-31"),
    ],
)  # fmt: skip
def test_impossible_splits(split, message):
    with pytest.raises(UserError) as error:
        check_split(split)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "split",
    [
        ["2024-01-01", "2024-01-21"],
        ["2024-01-11", "2024-01-30 00:00:01"],
        ["2024-01-11", "2024-01-21", "2024-01-31 00:00:01"],
    ],
)
def test_dates_outside_the_series(split):
    with pytest.raises(UserError, match=r"is outside data, 2024-01-01 00:00:00 to 2024-01-30 00:00:00; choose another"):
        split_rows(split, days(30), "data")


def test_windows_forecast_their_own_split_only():
    starts = split_windows((8640, 11520, 14400), 336, 96, "etth1")
    assert starts == {
        "train": range(8640 - 336 - 96 + 1),
        "val": range(8640 - 336, 11520 - 96 - 336 + 1),
        "test": range(11520 - 336, 14400 - 96 - 336 + 1),
    }
    for horizon, count in ((96, 2785), (192, 2689), (336, 2545), (720, 2161)):
        for past in (24, 336, 720):
            assert len(split_windows((8640, 11520, 14400), past, horizon, "etth1")["test"]) == count
    assert list(split_windows((50, 50, 90), 10, 5, "data")) == ["train", "test"]
    assert len(split_windows((15, 20, 25), 10, 5, "data")["test"]) == 1


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (
            (14, 30, 40),
            "data: 14 train rows are too few for one window of 15 (data.context_length 10 + data.horizon 5); ",
        ),
        ((20, 24, 40), "data: 4 val rows are too few for one window of 5 (data.horizon 5); "),
        ((20, 30, 34), "data: 4 test rows are too few for one window of 5 (data.horizon 5); "),
    ],
)
def test_a_split_shorter_than_one_window(ends, message):
    with pytest.raises(UserError) as error:
        split_windows(ends, 10, 5, "data")
    expected = message + "give more rows, a smaller data.context_length or data.horizon, or another data.split"
    assert str(error.value) == expected


def test_a_batch_of_windows_is_what_slices_would_be():
    values, calendar = torch.randn(50, 3), torch.randn(50, 2)
    windows = Windows(values, calendar, range(7, 30), context_length=10, horizon=4)
    assert len(windows) == 23
    index = torch.tensor([22, 0, 5])
    batch = windows[index]
    assert batch["start"].tolist() == [29, 7, 12]
    for row, start in enumerate((29, 7, 12)):
        assert batch["past"][row].equal(values[start : start + 10])
        assert batch["future"][row].equal(values[start + 10 : start + 14])
        assert batch["calendar"][row].equal(calendar[start : start + 14])
    assert all(tensor.is_contiguous() for tensor in batch.values())
    assert list(Windows(values, None, range(5), 10, 4)[index[1:2]]) == ["past", "future", "start"]


def test_windows_share_the_memory_of_the_series():
    values = torch.randn(50, 3)
    windows = Windows(values, None, range(30), context_length=10, horizon=4)
    assert {view.untyped_storage().data_ptr() for view in windows.views.values()} == {values.data_ptr()}


def test_the_last_window_needs_no_future():
    values, calendar = torch.randn(12, 3), torch.randn(16, 2)
    windows = Windows(values, calendar, range(2, 3), context_length=10, horizon=4, known=False)
    batch = windows[torch.tensor([0])]
    assert list(batch) == ["past", "calendar", "start"]
    assert batch["past"][0].equal(values[2:])
    assert batch["calendar"][0].equal(calendar[2:])


def test_scaler():
    train = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 9.0], [3.0, 5.0]])
    scaler = fit_scaler(train, ["load", "heat"], 2, "data")
    assert scaler["mean"] == [3, 6]
    assert scaler["scale"] == pytest.approx([math.sqrt(2), math.sqrt(3)])
    assert scaler["naive_error"] == pytest.approx([(4 + 0) / 2 / math.sqrt(2), (4 + 0) / 2 / math.sqrt(3)])
    train[:, 1] = 5
    with pytest.raises(UserError) as error:
        fit_scaler(train, ["load", "heat"], 2, "data")
    assert str(error.value) == "data: column 'heat' is 5 in all training rows; leave it out of data.targets"


@pytest.mark.parametrize("far", [1e300, 1e-200])
def test_a_column_that_can_not_be_scaled(far):
    """The squares of such numbers are infinite or zero."""
    train = np.array([[1.0, 0.0], [3.0, far], [5.0, 0.0]])
    with pytest.raises(UserError, match=rf"^data: column 'heat' runs from 0 to {re.escape(f'{far:g}')} in the tr"):
        fit_scaler(train, ["load", "heat"], 1, "data")


def test_a_value_beyond_all_scale():
    series = days(3)
    assert series.scaled([0.0], [1.0]).equal(torch.zeros(3, 1))
    series.values[1] = 1e300
    with pytest.raises(UserError) as error:
        series.scaled([0.0], [1.0])
    assert str(error.value) == (
        "data: column 'load' is 1e+300 at 2024-01-02 00:00:00, far outside the range of the training rows; correct it"
    )


def test_generated_series_is_the_same_each_time_and_hourly():
    series = generated_series()
    assert series.names == list(GENERATED_COLUMNS)
    assert series.values.shape == (10_000, 7)
    assert series.step == Step(3600)
    assert (np.diff(series.times).astype(int) == 3600).all()
    np.testing.assert_array_equal(series.values, generated_series().values)
    assert np.isfinite(series.values).all()
    assert generated_series(["a", "b", "c", "d", "e", "f", "g"]).names == ["a", "b", "c", "d", "e", "f", "g"]


def test_generated_columns_are_what_they_are_called():
    series = generated_series()
    column = dict(zip(series.names, series.values.T, strict=True))
    assert np.std(column["sine"] - np.sin(0.1 * np.arange(10_000))) == pytest.approx(0.1, rel=0.05)
    lags = [
        np.corrcoef(column["tide"][: -10 or None], np.roll(column["delayed"], -lag)[:-10])[0, 1] for lag in range(9)
    ]
    assert int(np.argmax(lags)) == 5
    weekend = (series.times.astype("datetime64[D]").astype(int) + 3) % 7 >= 5
    assert column["working"][~weekend].mean() > column["working"][weekend].mean() + 1
    level = np.sin(2 * np.pi * np.arange(10_000) / 37)
    noise = column["bursts"] - 20 - 4 * level
    assert noise[level > 0.7].std() > 2 * noise[level < -0.7].std()


def test_generated_series_can_be_learned_but_not_by_repeating():
    """Every column but one has less than a third of the error once its own periods are known."""
    series = generated_series()
    past, horizon = 336, 24
    scaler = fit_scaler(series.values[:7000], series.names, 24, "generated")
    values = series.scaled(scaler["mean"], scaler["scale"])
    from litlab.data.series.baselines import fit_ridge

    weight = fit_ridge(values[:7000], values[7000 - past : 8000], past, horizon)
    methods = {
        "last": lambda x: repeat_last(x, horizon),
        "naive": lambda x: seasonal_naive(x, horizon, 24),
        "ridge": lambda x: linear_forecast(x, weight),
    }
    batch = Windows(values, None, range(8000, 9600), past, horizon)[torch.arange(1600)]
    errors = forecast_errors(methods, [(batch["past"], batch["future"])], torch.ones(7))
    assert errors["ridge"]["mse"] < errors["naive"]["mse"] / 4
    assert errors["ridge"]["mse"] < errors["last"]["mse"] / 4
