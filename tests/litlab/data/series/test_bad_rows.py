"""Rows and numbers that make no series: all are named at once, or left out; and the scale of what is left."""

import numpy as np
import pytest

from litlab.data import SeriesData
from litlab.data.numbers import no_number
from litlab.data.series.predictions import read_last_window
from tests.litlab.data.conftest import prepared, refusal


def hours(folder, bad=(), rows=60):
    times = np.datetime64("2024-01-01T00:00:00") + np.arange(rows).astype("timedelta64[h]")
    lines = ["date,load,heat", *(f"{str(t).replace('T', ' ')},{n % 7},{n % 5}" for n, t in enumerate(times))]
    for row, change in dict(bad).items():
        lines[row - 1] = change(lines[row - 1])
    path = folder / "load.csv"
    path.write_text("\n".join(lines))
    return path


def series(path, **options):
    return SeriesData("csv", str(path), context_length=4, horizon=2, season=2, **options)


ODD = {
    5: lambda line: line.replace("-01 ", "/01 "),
    9: lambda line: line[:-1] + "12 kW",
    13: lambda line: line + ",3",
    17: lambda line: "2024-01-01 07:00:00,1,1",
    21: lambda line: line.replace(":00:00", ":20:00"),
    25: lambda line: line.replace(":00:00", ":00:00+01:00"),
    29: lambda line: "2025" + line[4:],
}


def test_all_bad_rows_of_a_series_are_in_one_error(tmp_path):
    path = hours(tmp_path, ODD)
    for gaps in ("error", "interpolate"):
        message = refusal(prepared, series(path, gaps=gaps))
        assert message.startswith(
            f"{path}: 7 of 60 rows can't be used: line 5 (column 'date' is '2024-01/01 03:00:00', no"
        )
        assert message.endswith("and 4 more; correct or delete them, or use --data.bad_rows drop")


@pytest.mark.parametrize(("row", "change"), ODD.items())
def test_each_bad_row_of_a_series_is_named(tmp_path, row, change):
    path = hours(tmp_path, {row: change})
    assert refusal(prepared, series(path)).startswith(f"{path}, line {row}: ")


def test_bad_rows_of_a_series_become_gaps(tmp_path, said):
    path = hours(tmp_path, ODD)
    assert refusal(prepared, series(path, bad_rows="drop")).endswith(
        "(7 bad rows were dropped); add what is missing, or use --data.gaps interpolate"
    )
    said.clear()
    data = prepared(series(path, bad_rows="drop", gaps="interpolate"))
    assert len(data.times) == 60
    assert data.description.endswith("7 missing rows and 0 empty values interpolated, 7 rows dropped")
    assert said[0].startswith(f"{path}: 7 of 60 rows dropped (data.bad_rows): line 5 (")
    windows, _ = read_last_window(hours(tmp_path, {59: ODD[17]}), data.known_metadata, "interpolate", "drop")
    assert len(windows) == 1
    assert "line 59 (2024-01-01 07:00:00 occurs twice, also in line 9" in said[-1]


def test_the_ends_of_a_series_are_dropped_without_gaps(tmp_path):
    path = hours(tmp_path, {2: lambda line: line[:-1], 61: lambda line: line[:-1] + "?"})
    assert "line 61 (column 'heat' is '?', not a number)" in refusal(prepared, series(path, gaps="interpolate"))
    assert len(prepared(series(path, bad_rows="drop")).times) == 58


def test_a_file_in_no_order_is_not_thinned_out(tmp_path):
    path = hours(tmp_path)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(lines)]))
    for policy in ("error", "drop"):
        assert refusal(prepared, series(path, bad_rows=policy, gaps="interpolate")) == (
            f"{path}: most rows are not in order of time, first line 3: 2024-01-03 10:00:00 after 2024-01-03 11:00:00; "
            f"sort them by time, and give one series per file"
        )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1,234.00", "1234.00"), ("3,5", "3.5"), ("5%", "5"), ("12 kW", "12"), ("1 234", "1234"), ("$5", "5"),
        ("1.234,5", "1234.5"), ("1,234", "1234 or 1.234"), ("-1,234,567", "-1234567"), ("1.234.567", "1234567"),
        ("1'234.5", "1234.5"), ("1\u202f234,5", "1234.5"), ("\u22125.5", "-5.5"), ("20\u00b0C", "20"),
        ("7 \u20ac", "7"), ("0,5 %", "0.5"), ("+3,5", "3.5"),
        ("a", None), ("2024-01-01", None), ("12:30", None), ("1.2.3", None), ("1,2,3", None), ("1/2", None), ("", None),
    ],
)  # fmt: skip
def test_numbers_in_other_notations(text, meant):
    expected = f"not a plain number: write {meant}" if meant else "not a number"
    assert no_number("load", text) == f"column 'load' is {text!r}, {expected}"


@pytest.mark.parametrize("change", [lambda v: f'"{v},5"', lambda v: f"{v}%", lambda v: f"{v} kW", lambda v: f"${v}"])
def test_a_column_in_another_notation_is_not_taken_for_words(tmp_path, change):
    path = tmp_path / "load.csv"
    rows = "".join(f"2024-01-{day:02},{day},{change(day)}\n" for day in range(1, 20))
    path.write_text("date,load,heat\n" + rows)
    message = refusal(prepared, series(path))
    assert message.startswith(f"{path}, line 2 (and 18 more): column 'heat' is '")
    assert message.endswith("; correct the column, or name other columns in data.targets")
    assert prepared(series(path, targets=["load"])).num_targets == 1


def test_numbers_with_decimal_commas_among_others(tmp_path):
    path = hours(tmp_path, {9: lambda line: line[:-1] + '"3,5"'})
    assert refusal(prepared, series(path)).startswith(
        f"{path}, line 9: column 'heat' is '3,5', not a plain number: write 3.5; "
    )


def test_a_scale_set_by_one_value(tmp_path, said):
    for number in ("1e30", "1e300"):
        path = hours(tmp_path, {9: lambda line, number=number: line[:-1] + number})
        assert refusal(prepared, series(path)) == (
            f"csv {path}: column 'heat' is {float(number):g} in line 9 (2024-01-01 07:00:00), which makes all other "
            f"training rows alike when it is scaled; correct or empty it"
        )
    path = hours(tmp_path, {9: lambda line: line[:-1] + "-9999"})
    prepared(series(path))
    assert said[-1].startswith(f"warning: csv {path}: column 'heat' is -9999 in line 9 (2024-01-01 07:00:00), ")
    path = hours(tmp_path, {58: lambda line: line[:-1] + "1e30"})  # a test row
    assert refusal(prepared, series(path)) == (
        "data: column 'heat' is 1e+30 in line 58 (2024-01-03 08:00:00), far outside the range of the training rows; "
        "correct it"
    )


@pytest.mark.parametrize("stamp", ["1704067200", "1701011200000", "20240101012"])
def test_numbers_are_no_times(tmp_path, stamp):
    path = hours(tmp_path, {9: lambda line: stamp + line[19:]})
    assert refusal(prepared, series(path)).startswith(
        f"{path}, line 9: column 'date' is '{stamp}', not a time: write it like"
    )
