"""Rows become series at equal steps, or it is said why not."""

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data.series.regular import Series
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.series.conftest import frame_of, hours, make, wave


def read(source, **options) -> Series:
    """The series of some times, or of a frame."""
    frame = source if isinstance(source, pd.DataFrame) else frame_of(source)
    return make(frame, **options).series


@pytest.mark.parametrize(
    ("freq", "season"),
    [("15min", 96), ("D", 7), ("B", 5), ("MS", 12), ("ME", 12), ("QS", 4), ("YS", 1)],
)
def test_steps(freq, season):
    times = pd.date_range("1949-01-01", periods=300, freq=freq)
    data = prepared(make(frame_of(times.astype(str)), season=None))
    # Quarters from January or October are the same
    assert (data.metadata.freq.partition("-")[0], data.metadata.season) == (freq, season)
    assert (data.series.times == times).all()
    np.testing.assert_array_equal(data.series.table, wave(300))


@pytest.mark.parametrize(("freq", "made_up"), [("h", [7, 20]), ("B", [5, 31, 32])])
def test_gaps_are_interpolated_and_their_share_is_said(said, freq, made_up):
    """Rows in any order; the last row that is made up is there, without a value."""
    times, values = pd.date_range("2020-01-31", periods=60, freq=freq), np.arange(60) * 2.0
    frame, count = frame_of(times, load=values), len(made_up)
    frame.loc[made_up[-1], "load"] = None
    frame = frame.drop(made_up[:-1])[::-1]
    summary = f"no row, or no value, at {count} of 60 times ({count / 60:.1%} of a column), the "
    assert f"{summary}first at {times[made_up[0]]}; add" in refusal(read, frame)
    series = read(frame, gaps="interpolate")
    assert summary in said[0]
    assert series.made_up.get_level_values(1).equals(times[made_up])
    assert series.metadata.freq == freq
    np.testing.assert_allclose(series.table["load"], values)
    assert (series.times == times).all()


@pytest.mark.parametrize("gone", [[10, 66, 75, 88], [75, 76], [97]])
def test_what_is_made_up_is_no_truth(gone):
    """Neither in validation nor in test; in training and as a past it may be."""
    frame = frame_of(hours(100))
    frame.loc[gone, "load"] = None
    data = prepared(make(frame, gaps="interpolate"))
    whole = prepared(make())
    for split in ("train", "val", "test"):
        starts = whole.samples(split).starts
        future = starts[:, None] + torch.arange(6, 9)
        lost = torch.isin(future, torch.tensor(gone)).any(1)
        left = starts if split == "train" else starts[~lost]
        assert data.samples(split).starts.tolist() == left.tolist()
    frame.loc[[72, 75, 78], "load"] = None
    message = "data: no window whose future is not interpolated fits into 10 val rows"
    assert message in refusal(prepared, make(frame, gaps="interpolate"))


def test_jitter_is_no_gap():
    """Of times that all jitter, 386 of 598 were made up once."""
    rng = np.random.default_rng(0)
    grid = pd.date_range("2024-01-01", periods=598, freq="10min")
    series = read(grid + pd.to_timedelta(rng.integers(-2, 3, 598), "s"))
    assert (series.times == grid).all()
    np.testing.assert_array_equal(series.table.to_numpy(), wave(598))


def test_no_value_moves_to_another_day():
    """A tenth of a month is three days."""
    times = pd.date_range("2023-01-31", periods=40, freq="ME").astype(str).tolist()
    times[16] = "2024-05-30 23:00"
    assert str(read(times).times[16]) == "2024-05-31 00:00:00"
    times[16] = "2024-05-30"
    assert "row 17 (2024-05-30 00:00:00 is there twice or off the step" in refusal(read, times)


@pytest.mark.parametrize("options", [{}, {"gaps": "interpolate", "bad_rows": "drop"}])
def test_too_much_is_never_made_up(options):
    """Half-hourly with every fifth row left out; at random; and two interleaved, of which half are
    in order.
    """
    rows = np.arange(400)
    times = pd.date_range("2024-01-01", periods=400, freq="30min")[rows % 5 != 2]
    message = refusal(read, times, **options)
    assert "(20.0% of a column), the first at 2024-01-01 01:00:00; too much" in message
    steps = np.random.default_rng(0).integers(5, 60, 500)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(steps.cumsum(), "min")
    for freq in (None, "30min"):
        assert "of the times are off the step of " in refusal(read, times, freq=freq, **options)
    message = refusal(read, np.repeat(hours(50), 2), **options)
    assert "50% of the times are there twice, the first in row 2" in message


@pytest.mark.parametrize(
    ("row", "column", "value", "problem"),
    [
        (3, "date", "soon", "'date' is soon"),
        (31, "load", "inf", "'load' is inf, not a number"),
        (99, "date", "2094-01-01", "2094-01-01 00:00:00 is there twice or off the step of h; "),
    ],
)
def test_bad_rows_are_named_or_left_out(row, column, value, problem):
    frame = frame_of(hours(100)).astype(object)
    frame.loc[row, column] = value
    message = refusal(read, frame, gaps="interpolate")
    assert f"1 of 100 rows can't be used: row {row + 1} ({problem}" in message
    series = read(frame, gaps="interpolate", bad_rows="drop")
    assert len(series.times) == 100 - (row == 99)  # where the last row is dropped, there is no gap
    assert series.times.astype(str).tolist() == hours(len(series.times))
