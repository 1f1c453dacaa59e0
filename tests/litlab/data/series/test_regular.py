"""Rows become series at equal steps, or it is said why not."""

import numpy as np
import pandas as pd
import pytest

from litlab.data.frames import FileFormat
from litlab.data.series.regular import Series, read_series
from litlab.data.series.serving import find_season
from tests.litlab.data.conftest import refusal
from tests.litlab.data.series.conftest import frame_of, hours, wave


def read(times, *, columns=None, **options) -> Series:
    return read_frame(frame_of(times, **(columns or {})), **options)


def read_frame(frame, *, targets=None, series_column=None, freq=None, form=None, **options) -> Series:
    known = {"time_column": "date", "targets": targets, "series_column": series_column, "freq": freq}
    return read_series(frame, known, form or FileFormat(), **options)


@pytest.mark.parametrize(
    ("times", "freq", "season"),
    [
        (["2024-01-01 00:00", "2024-01-01 00:15", "2024-01-01 00:30"], "15min", 96),
        (["2024-02-27", "2024-02-28", "2024-02-29"], "D", 7),
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"], "B", 5),
        (["1949-01", "1949-02", "1949-03", "1949-04"], "MS", 12),
        (["2023-11-30", "2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31"], "ME", 12),
        (["2023-01-01", "2023-04-01", "2023-07-01", "2023-10-01"], "QS-JAN", 4),
        (["2020", "2021", "2022", "2023"], "YS-JAN", 1),
    ],
)
def test_steps(times, freq, season):
    series = read(times)
    assert (series.freq, find_season(series.freq)) == (freq, season)
    assert (series.times == pd.DatetimeIndex(times)).all()
    np.testing.assert_array_equal(series.table.to_numpy(), wave(len(times)))


@pytest.mark.parametrize(("freq", "made_up"), [("h", [7]), ("B", [5, 31, 32])])
def test_gaps_are_interpolated_and_their_share_is_said(said, freq, made_up):
    times, values = pd.date_range("2020-01-31", periods=60, freq=freq), np.arange(60) * 2.0
    rows = np.delete(np.arange(60), made_up)
    columns, count = {"load": values[rows]}, len(made_up)
    summary = f"data.path: {count} of 60 rows are missing or lack a value ({count / 60:.1%} of a column), the first at "
    assert refusal(read, times[rows], columns=columns).startswith(f"{summary}{times[made_up[0]]}; add them, or use")
    series = read(times[rows], columns=columns, gaps="interpolate")
    assert said[0].startswith(summary)
    assert series.freq == freq
    np.testing.assert_allclose(series.table["load"], values)
    assert (series.times == times).all()


def test_jitter_is_no_reason_to_make_rows_up():
    """Every ten minutes, but for two seconds: 386 of 598 rows were made up once."""
    rng = np.random.default_rng(0)
    grid = pd.date_range("2024-01-01", periods=598, freq="10min")
    series = read(grid + pd.to_timedelta(rng.integers(-2, 3, 598), "s"), gaps="interpolate")
    assert series.freq == "10min"
    assert (series.times == grid).all()
    np.testing.assert_array_equal(series.table.to_numpy(), wave(598))


@pytest.mark.parametrize("options", [{}, {"gaps": "interpolate", "bad_rows": "drop"}])
def test_too_much_is_never_made_up(options):
    """Half-hourly with every fifth row left out; at random; and a column of holes."""
    rows = np.arange(400)
    message = refusal(read, pd.date_range("2024-01-01", periods=400, freq="30min")[rows % 5 != 2], **options)
    assert message == (
        "data.path: 80 of 400 rows are missing or lack a value (20.0% of a column), the first at 2024-01-01 01:00:00; "
        "that is too much to make up: fill it, leave it out, or use --data.freq STEP"
    )
    steps = np.random.default_rng(0).integers(5, 60, 500)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(steps.cumsum(), "min")
    for freq in (None, "30min"):
        assert "of the times are there twice or off the step of " in refusal(read, times, freq=freq, **options)


def test_days_of_a_clock_that_is_put_forward():
    """Local midnights with UTC offsets are 23 or 25 hours apart twice a year."""
    times = pd.date_range("2024-01-01", periods=366, freq="D", tz="Europe/Berlin")
    for form in ([time.isoformat() for time in times], times):
        series = read(form)
        assert (series.freq, series.times.tz) == ("D", None)
        assert (series.times == times.tz_localize(None)).all()


def test_interleaved_series_are_not_one():
    times = [time for time in hours(50) for _ in range(2)]
    message = (
        "data.path: 50% of the times are there twice or off the step of h, the first in row 2; correct them, or "
        "set freq, or series_column where there are several series"
    )
    for options in ({}, {"bad_rows": "drop", "gaps": "interpolate"}):
        assert refusal(read, times, **options) == message


@pytest.mark.parametrize(
    ("row", "column", "value", "problem"),
    [
        (3, "date", "soon", "'date' is soon"),
        (31, "load", "inf", "'load' is inf, not a number"),
        (20, "date", "2024-01-01 08:00:00", "2024-01-01 08:00:00 is there twice or off the step"),
        (99, "date", "2094-01-01", "2094-01-01 00:00:00 is there twice or off the step of h; "),
    ],
)
def test_bad_rows_are_named_or_left_out(row, column, value, problem):
    frame = frame_of(hours(100)).astype(object)
    frame.loc[row, column] = value
    message = refusal(read_frame, frame, gaps="interpolate")
    assert f"1 of 100 rows can't be used: row {row + 1} ({problem}" in message
    series = read_frame(frame, gaps="interpolate", bad_rows="drop")
    assert len(series.times) == 100 - (row == 99)  # where the last row is dropped, there is no gap
    assert series.times.astype(str).tolist() == hours(len(series.times))


def test_rows_may_be_in_any_order_and_cells_empty():
    frame = frame_of(hours(60)[::-1], load=["NA", *range(30), "null", "?", *range(27)], note=["x"] * 60)
    series = read_frame(frame, form=FileFormat(missing=("?",)), gaps="interpolate")
    assert (len(series.times), list(series.table)) == (59, ["load"])
    assert series.times.is_monotonic_increasing
    assert series.table.to_numpy()[26:30, 0].tolist() == pytest.approx([0, 29 / 3, 58 / 3, 29])


def test_files_that_hold_no_series():
    message = "there is no column of numbers besides that of the times; add one"
    assert message in refusal(read, hours(9), columns={"note": ["a"] * 9})
    assert "one time makes no series" in refusal(read, hours(1))
