"""Rows become series at equal steps, or it is said why not."""

import numpy as np
import pandas as pd
import pytest

from litlab.data.frames import FileFormat
from litlab.data.series.regular import find_season, read_series
from tests.litlab.data.conftest import refusal
from tests.litlab.data.series.conftest import frame_of, hours, wave


def read(times, *, columns=None, **options):
    return read_series(frame_of(times, **(columns or {})), "date", **options)


@pytest.mark.parametrize(
    ("times", "freq", "season"),
    [
        (["2024-01-01 00:00", "2024-01-01 00:15"], "15min", 96),
        (["2024-02-27", "2024-02-28", "2024-02-29"], "D", 7),
        (["2024-01-01", "2024-01-08", "2024-01-15"], "W-MON", 52),
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09"], "B", 5),
        (["1949-01", "1949-02", "1949-03", "1949-04"], "MS", 12),
        (["2023-11-30", "2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31"], "ME", 12),
        (["2023-01-01", "2023-04-01", "2023-07-01", "2023-10-01"], "QS-JAN", 4),
        (["2020", "2021", "2022", "2023"], "YS-JAN", 1),
        ([1704067200, 1704067260, 1704067320], "min", 1440),
    ],
)
def test_steps(times, freq, season):
    series = read(times)
    assert (series.freq, find_season(series.freq)) == (freq, season)
    texts = pd.to_datetime(pd.Series(times), unit="s" if isinstance(times[0], int) else None)
    assert (series.times == pd.DatetimeIndex(texts)).all()
    np.testing.assert_array_equal(series.values, wave(len(times)))
    assert series.remarks == ""


def test_months_from_any_day():
    times = pd.date_range("2023-01-01", periods=20, freq="MS") + pd.Timedelta(days=14)
    assert (read(times, freq="MS").times == times).all()


@pytest.mark.parametrize(
    ("freq", "kept", "made_up"),
    [("h", 60, [7]), ("D", 60, [7, 30]), ("B", 60, [5, 31, 32]), ("ME", 40, [3]), ("QS-JAN", 40, [9, 20])],
)
def test_gaps_are_interpolated_and_their_share_is_said(freq, kept, made_up):
    times = pd.date_range("2020-01-31", periods=kept, freq=freq)
    values = np.arange(kept) * 2.0
    rows = np.delete(np.arange(kept), made_up)
    columns = {"load": values[rows]}
    message = refusal(read, times[rows], columns=columns)
    share = f"{len(made_up) / kept:.1%}"
    assert message.startswith(f"data.path: {len(made_up)} of {kept} rows are missing or lack a value, the first at ")
    assert message.endswith(f"{times[made_up[0]]}; add them, or use --data.gaps interpolate ({share} would be made up)")
    series = read(times[rows], columns=columns, gaps="interpolate")
    assert series.freq == freq
    np.testing.assert_allclose(series.values[:, 0], values)
    assert (series.times == times).all()
    assert series.remarks == f", {len(made_up)} rows with gaps interpolated ({share} of the values)"


def test_jitter_is_no_reason_to_make_rows_up():
    """Every ten minutes, but for two seconds: 386 of 598 rows were made up once."""
    rng = np.random.default_rng(0)
    grid = pd.date_range("2024-01-01", periods=598, freq="10min")
    series = read(grid + pd.to_timedelta(rng.integers(-2, 3, 598), "s"), gaps="interpolate")
    assert (series.freq, series.remarks) == ("10min", "")
    assert (series.times == grid).all()
    np.testing.assert_array_equal(series.values, wave(598))


@pytest.mark.parametrize("options", [{}, {"gaps": "interpolate", "bad_rows": "drop"}])
def test_too_much_is_never_made_up(options):
    """Half-hourly with every fifth row left out; at random; and a column of holes."""
    rows = np.arange(400)
    message = refusal(read, pd.date_range("2024-01-01", periods=400, freq="30min")[rows % 5 != 2], **options)
    assert message == (
        "data.path: 80 of 400 rows are missing or lack a value, the first at 2024-01-01 01:00:00; 20% of a column is "
        "too much to make up: fill it, leave it out, or use --data.freq STEP"
    )
    steps = np.random.default_rng(0).integers(5, 60, 500)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(steps.cumsum(), "min")
    for freq in (None, "30min"):
        assert "most times are not at equal steps" in refusal(read, times, freq=freq, **options)
    sparse = np.where(rows[:100] % 5 == 2, np.nan, rows[:100])
    assert "20% of a column is too much to make up" in refusal(read, hours(100), columns={"load": sparse}, **options)


def test_days_of_a_clock_that_is_put_forward():
    """Local midnights with UTC offsets are 23 or 25 hours apart twice a year."""
    times = pd.date_range("2024-01-01", periods=366, freq="D", tz="Europe/Berlin")
    for form in ([time.isoformat() for time in times], times):
        series = read(form)
        assert (series.freq, series.utc, series.remarks) == ("D", False, "")
        assert (series.times == times.tz_localize(None)).all()
    hourly = pd.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")
    series = read([time.isoformat() for time in hourly])
    assert (series.freq, series.utc, str(series.times[0])) == ("h", True, "2024-03-29 23:00:00")


def test_interleaved_series_are_not_one():
    times = [time for time in hours(50) for _ in range(2)]
    message = (
        "data.path: 50% of the rows have the time of another row, as where there are several series; give one alone, "
        "or use --data.series_column COLUMN"
    )
    for options in ({}, {"bad_rows": "drop", "gaps": "interpolate"}):
        assert refusal(read, times, **options) == message
    columns = {"load": np.arange(100.0), "place": ["b", "a"] * 50}
    series = read(times, columns=columns, series_column="place")
    assert series.bounds.tolist() == [[0, 50], [50, 100]]
    np.testing.assert_array_equal(series.table.loc["b", "load"], range(0, 100, 2))
    np.testing.assert_array_equal(series.values[50:, 0], range(1, 100, 2))


CELLS = {
    3: ("date", "soon", "column 'date' is 'soon', no time"),
    7: ("heat", "12 kW", "column 'heat' is '12 kW', no number"),
    25: ("load", "2019_20", "column 'load' is '2019_20', no number"),
    31: ("load", "inf", "column 'load' is 'inf', no number"),
}
TIMES = {
    15: ("date", "2024-01-01 07:10:00", "2024-01-01 07:10:00 is there twice or off the step of h; where clocks were"),
    99: ("date", "2094-01-01", "2094-01-01 00:00:00 is there twice or off the step of h; where clocks were put back"),
    20: ("date", "2024-01-01 08:00:00", "2024-01-01 08:00:00 is there twice or off the step of h; where clocks were"),
}


@pytest.mark.parametrize("odd", [CELLS, TIMES])
def test_bad_rows_are_named_or_left_out(said, odd):
    frame = frame_of(hours(100)).astype(object)
    for row, (column, value, problem) in odd.items():
        frame.loc[row, column] = value
        alone = frame_of(hours(100)).astype(object)
        alone.loc[row, column] = value
        assert f"row {row + 1} ({problem}" in refusal(read_series, alone, "date")
    message = refusal(read_series, frame, "date", gaps="interpolate")
    assert f"{len(odd)} of 100 rows can't be used: row " in message
    assert message.endswith("; correct or delete them, or use --data.bad_rows drop")
    series = read_series(frame, "date", gaps="interpolate", bad_rows="drop")
    gaps = len(set(odd) - {99})  # where the last row is dropped, there is no gap
    assert series.remarks.startswith(f", {gaps} rows with gaps interpolated (")


def test_rows_may_be_in_any_order_and_cells_empty(said):
    frame = frame_of(hours(60)[::-1], load=["NA", *range(30), "null", "?", *range(27)], note=["x"] * 60)
    series = read_series(frame, "date", form=FileFormat(missing=("?",)), gaps="interpolate")
    assert (len(series.times), list(series.table)) == (59, ["load"])
    assert series.times.is_monotonic_increasing
    assert series.values[26:30, 0].tolist() == pytest.approx([0, 29 / 3, 58 / 3, 29])
    assert "hold no numbers: note" in said[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["lod"]}, "there is no column 'lod', only 'date', 'load', 'heat'; did you mean 'load'?"),
        ({"series_column": "x"}, "there is no column 'x', only 'date', 'load', 'heat'; set --data.time_column, --data"),
        ({"columns": {"note": ["a"] * 9}}, "there is no column of numbers besides that of the times; add one"),
        ({"columns": {"note": ["a"] * 9}, "targets": ["note"]}, "row 1 (column 'note' is 'a', no number)"),
        ({"times": hours(1)}, "one time makes no series"),
    ],
)
def test_files_that_hold_no_series(options, message):
    assert message in refusal(read, options.pop("times", hours(9)), **options)
