"""Splits, the calendar and the ridge."""

import math

import pandas as pd
import pytest
import torch

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.series.conftest import frame_of, hours, long_frame, make, take


@pytest.mark.parametrize("zone", ["", "+02:00"])
def test_all_series_are_cut_at_one_time(zone):
    """By the range of all of them, by dates, and in folds: none is trained on what is tested in
    another.
    """
    long, late = hours(100), hours(60, "2024-01-03")  # 48 hours later
    frame = pd.concat([frame_of(long).assign(place="a"), frame_of(late).assign(place="b")])
    frame["date"] += zone
    for options, begins in (
        ({}, (75, 86)),  # of 108 hours
        ({"cut": ["2024-01-04 00:00", "2024-01-04 12:00"]}, (72, 84)),
        ({"cut": ["2024-01-03 20:00"], "val_fraction": 0.0}, (68, 68)),
        ({"fold": "3/5", "val_fraction": 0.25}, (54, 72)),
        ({"val_fraction": 0.0, "test_fraction": 0.71}, (31, 31)),
    ):
        cut = [time + zone for time in options.get("cut", [])]
        data = prepared(make(frame, series_column="place", **options | {"cut": cut}))
        hour = (data.series.times - data.series.times.min()) // pd.Timedelta("1h")
        for split, first in zip(("val", "test"), begins, strict=True):
            assert split not in data.sizes or hour[data._split == split].min() == first
        assert hour[data._split == "train"].max() == begins[0] - 1


@pytest.mark.parametrize("cut", [["soon"], ["2024-01-03", "2024-01-02"], ["2030-01-01"]])
def test_cuts_that_are_none(cut):
    assert refusal(prepared, make(cut=cut)).startswith("data.cut: ")


SCALE = "nothing can be learned from column 'load', which"


@pytest.mark.parametrize(
    ("rows", "values", "message"),
    [
        (8, range(8), "a series needs 9 rows with a target, and the series has 8; give more"),
        (20, range(20), "no window fits into 2 val rows"),
        (30, [0.0, 1e300, 1.0] * 10, SCALE),
        (30, 1000.1, SCALE),
        (9, "a", "there is no column of numbers besides that of the times; add one"),
        (1, 2, "one time makes no series"),
    ],
)
def test_what_is_refused(rows, values, message):
    frame = pd.DataFrame({"date": hours(rows), "load": values})
    assert message in refusal(prepared, make(frame))


def test_calendar_features_are_angles():
    times = pd.date_range("2024-02-11T06:45:00", periods=100, freq="15min")  # a Sunday
    data = prepared(make(frame_of(times), covariates=["hour", "minute", "weekday", "day", "month"]))
    shares = torch.tensor([6 / 24, 45 / 60, 6 / 7, 10 / 29, 1 / 12])
    angles = 2 * math.pi * shares
    torch.testing.assert_close(
        data.encoded["covariates"][0], torch.stack([angles.sin(), angles.cos()], dim=1).flatten()
    )


@pytest.mark.parametrize("val_fraction", [0.0, 0.2])
def test_the_ridge_of_several_series_is_that_of_their_windows_together(val_fraction):
    """With the penalty of the least error on the validation windows."""
    options = {"series_column": "place", "context_length": 5, "val_fraction": val_fraction}
    data, pairs = prepared(make(long_frame(b=100, a=80), **options)), {}
    for split in data.sizes:
        batch = take(data, split)
        past, future = (batch[part].mT.flatten(0, 1).double() for part in ("past", "future"))
        pairs[split] = past - past.mean(1, keepdim=True), future - past.mean(1, keepdim=True)
    past, future = pairs["train"]
    gram = past.T @ past
    unit = gram.trace() / 5 * torch.eye(5)
    penalties = [10 ** (k / 2) for k in range(-12, 5)] if val_fraction else [0.01]
    weights = [torch.linalg.solve(gram + penalty * unit, past.T @ future) for penalty in penalties]
    past, future = pairs.get("val", pairs["train"])
    best = min(weights, key=lambda weight: float((past @ weight - future).square().sum())).T
    expected = best - best.mean(1, keepdim=True) + 1 / 5
    torch.testing.assert_close(data.ridge(5), expected.float(), atol=1e-4, rtol=1e-3)
    assert not val_fraction or best is not weights[0].T
