"""Steps of time, their gaps, and what comes next."""

from pathlib import Path

import numpy as np
import pytest

from litlab.data.bad_rows import BadRows
from litlab.data.series.reading import Table
from litlab.data.series.step import Step, find_step
from litlab.data.series.timeline import regular
from litlab.errors import UserError

MONTHS = ["2023-11-30", "2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31"]


def times(*texts: str) -> np.ndarray:
    return np.array(texts, dtype="datetime64[s]")


def table(stamps, values=None, utc=False) -> Table:
    values = np.arange(len(stamps), dtype=float)[:, None] if values is None else np.array(values, dtype=float)
    names = ["load", "heat"][: values.shape[1]]
    bad = BadRows(Path("data.csv"))
    return Table(bad.path, list(range(2, len(stamps) + 2)), times(*stamps), utc, names, values, bad)


@pytest.mark.parametrize(
    ("stamps", "step", "words", "season", "following"),
    [
        (["2024-01-01 22:00", "2024-01-01 23:00", "2024-01-02 00:00"], Step(3600), "1 hour", 24, "2024-01-02T01:00:00"),
        (["2024-01-01 00:00", "2024-01-01 00:15"], Step(900), "15 minutes", 96, "2024-01-01T00:30:00"),
        (["2024-01-01 00:00:00", "2024-01-01 00:00:07"], Step(7), "7 seconds", 1, "2024-01-01T00:00:14"),
        (["2024-02-27", "2024-02-28", "2024-02-29"], Step(86_400), "1 day", 7, "2024-03-01T00:00:00"),
        (["2024-01-01", "2024-01-08"], Step(604_800), "1 week", 52, "2024-01-15T00:00:00"),
        (["2024-01-01", "2024-01-29", "2024-02-26"], Step(28 * 86_400), "4 weeks", 1, "2024-03-25T00:00:00"),
        (["2023-12-01", "2024-01-01", "2024-02-01", "2024-03-01"], Step(0, 1), "1 month", 12, "2024-04-01T00:00:00"),
        (["2023-12-15 06:00", "2024-01-15 06:00"], Step(0, 1), "1 month", 12, "2024-02-15T06:00:00"),
        (MONTHS, Step(0, 1, True), "1 month", 12, "2024-04-30T00:00:00"),
        (["2023-07-31", "2023-08-31"], Step(0, 1, True), "1 month", 12, "2023-09-30T00:00:00"),
        (["2023-01-01", "2023-04-01", "2023-07-01"], Step(0, 3), "3 months", 4, "2023-10-01T00:00:00"),
        (["2022-01-01", "2023-01-01", "2024-01-01"], Step(0, 12), "12 months", 1, "2025-01-01T00:00:00"),
    ],
)
def test_steps(stamps, step, words, season, following):
    found = find_step(times(*stamps))
    assert found == step
    assert str(found) == words
    assert found.season == season
    assert str(found.after(times(*stamps)[-1], 1)[0]) == following
    series = regular(table(stamps), "error")
    assert series.step == step
    assert (series.times == times(*stamps)).all()
    assert series.filled == ""


def test_months_are_told_by_the_rows_that_agree():
    stamps = times("2024-01-01", "2024-01-29", "2024-03-01", "2024-03-29", "2024-05-01", "2024-05-29", "2024-07-01")
    assert find_step(stamps) == Step(0, 2)


def test_continuation_is_regular():
    for step, start in ((Step(0, 1, True), "2024-01-31"), (Step(0, 3), "2023-11-01"), (Step(7200), "2024-02-28T23:00")):
        start = np.datetime64(start, "s")
        stamps = np.concatenate([[start], step.after(start, 30)])
        assert find_step(stamps) == step
        assert step.fitting(stamps).all()
        assert step.positions(stamps).tolist() == list(range(31))


REMEDY = "; correct or delete the row, or use --data.bad_rows drop"
HOURS = ["2024-01-01 00:00:00", "2024-01-01 01:00:00", "2024-01-01 02:00:00", "2024-01-01 03:00:00"]


@pytest.mark.parametrize("gaps", ["error", "interpolate"])
@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        (
            [*HOURS, HOURS[3]],
            "data.csv, line 6: 2024-01-01 03:00:00 occurs twice, also in line 5 (where the clocks went back, "
            "add UTC offsets)" + REMEDY,
        ),
        (
            [*HOURS, "2023-12-31 23:00:00"],
            "data.csv, line 6: 2023-12-31 23:00:00 comes after 2024-01-01 03:00:00: sort the rows by time" + REMEDY,
        ),
        (
            [*HOURS, "2024-01-01 04:20:00", "2024-01-01 05:00:00"],
            "data.csv, line 6: 2024-01-01 04:20:00 is off the step of 1 hour" + REMEDY,
        ),
        (["2024-01-01"], "data.csv: only one row, so the time step is unknown; add more rows"),
        (
            ["2023-01-01", "2023-02-01", "2023-03-02", "2023-04-01", "2023-05-01"],
            "data.csv, line 4: 2023-03-02 00:00:00 is off the step of 1 month" + REMEDY,
        ),
    ],
)
def test_disorder_is_an_error_always(stamps, message, gaps):
    with pytest.raises(UserError) as error:
        regular(table(stamps), gaps)
    assert str(error.value) == message


def test_gaps_are_errors_unless_they_are_interpolated():
    stamps = [*HOURS, "2024-01-01 07:00:00", "2024-01-01 08:00:00"]
    with pytest.raises(UserError) as error:
        regular(table(stamps), "error")
    assert str(error.value) == (
        "data.csv, line 6: 3 rows are missing between 2024-01-01 03:00:00 and 2024-01-01 07:00:00, as the step is "
        "1 hour; add what is missing, or use --data.gaps interpolate"
    )
    values = [[0, 5], [np.nan, 5], [2, 6], [np.nan, 6], [7, 10], [8, 10]]
    series = regular(table(stamps, values), "interpolate")
    assert series.filled == "3 missing rows and 2 empty values interpolated"
    assert (np.diff(series.times).astype(int) == 3600).all()
    np.testing.assert_allclose(series.values[:, 0], np.arange(9))
    np.testing.assert_allclose(series.values[:, 1], [5, 5, 6, 6, 7, 8, 9, 10, 10])


def test_a_missing_month_is_one_row():
    series = regular(
        table(["2023-01-01", "2023-02-01", "2023-04-01", "2023-05-01"], [[1], [2], [4], [5]]), "interpolate"
    )
    assert series.values[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert str(series.times[2]) == "2023-03-01T00:00:00"


def test_an_empty_value_is_an_error_unless_it_is_interpolated():
    with pytest.raises(UserError) as error:
        regular(table(HOURS, [[1, 1], [2, 2], [3, np.nan], [4, 4]]), "error")
    assert str(error.value) == (
        "data.csv, line 4: column 'heat' is empty; add what is missing, or use --data.gaps interpolate"
    )


@pytest.mark.parametrize(("row", "which"), [(0, "start"), (3, "end")])
def test_nothing_is_made_up_at_the_ends(row, which):
    values = [[1.0], [2.0], [3.0], [4.0]]
    values[row] = [np.nan]
    with pytest.raises(UserError) as error:
        regular(table(HOURS, values), "interpolate")
    assert str(error.value) == (
        f"data.csv, line {row + 2}: column 'load' is empty at the {which} of the series, where it can't be interpolated"
        f"{REMEDY}"
    )


def test_a_gap_that_must_be_a_wrong_year_is_not_filled():
    with pytest.raises(UserError, match=r"line 5: 8,783 rows are missing .* that is too much to interpolate$"):
        regular(table([*HOURS[:3], "2025-01-01 02:00:00"]), "interpolate")


def test_an_expected_step():
    assert regular(table(HOURS), "error", Step(3600)).step == Step(3600)
    assert regular(table(HOURS[:1]), "error", Step(3600)).step == Step(3600)
    # Of two rows a month apart, 31 days apart, nobody can tell which step they have but who knows it.
    assert regular(table(["2024-01-01", "2024-02-01"]), "error", Step(31 * 86_400)).step == Step(31 * 86_400)
    with pytest.raises(UserError) as error:
        regular(table(HOURS), "error", Step(1800))
    assert str(error.value) == (
        "data.csv: its rows are 1 hour apart, the checkpoint was trained on 30 minutes; use rows with that step"
    )
    with pytest.raises(UserError, match="line 4: 1 row is missing between"):
        regular(table([HOURS[0], HOURS[1], HOURS[3], "2024-01-01 04:00"]), "error", Step(3600))


def test_selected_and_scaled():
    series = regular(table(HOURS, [[1, 10], [2, 30], [3, 10], [4, 30]]), "error").select(["heat", "load"])
    assert series.names == ["heat", "load"]
    scaled = series.scaled([20, 1], [10, 2])
    assert scaled.tolist() == [[-1, 0], [1, 0.5], [-1, 1], [1, 1.5]]
    assert str(scaled.dtype) == "torch.float32"
