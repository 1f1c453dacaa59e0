"""What a CSV file may look like, and the one line for each way to get it wrong."""

import gzip
import logging

import numpy as np
import pytest

from litlab.data.bad_rows import settle
from litlab.data.series.reading import read_table
from litlab.errors import UserError

REMEDY = "; correct or delete the row, or use --data.bad_rows drop"
GOOD = "date,load,heat,place\n2024-01-01,1,5.5,a\n2024-01-02,2,,b\n2024-01-03,3e1,-7,c\n"


def read(path, columns=None):
    """Like `regular`, it refuses bad rows."""
    table = read_table(path, "date", columns)
    settle((table.bad, len(table.lines)))
    return table


def test_columns_of_numbers_are_found(write):
    table = read_table(write(GOOD), "date", None)
    assert table.names == ["load", "heat"]
    assert table.times.dtype == np.dtype("datetime64[s]")
    assert table.times.astype(str).tolist() == ["2024-01-01T00:00:00", "2024-01-02T00:00:00", "2024-01-03T00:00:00"]
    assert table.lines == [2, 3, 4]
    assert not table.utc
    np.testing.assert_array_equal(table.values, [[1, 5.5], [2, np.nan], [30, -7]])


def test_columns_come_in_the_order_asked_for_and_others_are_not_looked_at(write):
    table = read_table(write(GOOD), "date", ["heat", "load"])
    assert table.names == ["heat", "load"]
    np.testing.assert_array_equal(table.values[0], [5.5, 1])


def test_a_column_of_words_may_hold_a_number(write):
    text = "date,place,load\n2024-01-01,a,1\n2024-01-02,7,2\n2024-01-03,b,3\n"
    assert read_table(write(text), "date", None).names == ["load"]


def test_what_is_left_out_is_said(write, caplog):
    text = "date,load,heat,\n2024-01-01,1,low,a\n2024-01-02,2,high,b\n"
    with caplog.at_level(logging.INFO):
        assert read_table(write(text), "date", None).names == ["load"]
    assert "data.csv: not among the targets, as they hold no numbers: heat ('low' in line 2)" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        read_table(write(text), "date", ["load"])
    assert not caplog.text


@pytest.mark.parametrize("empty", ["", " ", "NaN", "nan", "NA", "N/A", "null", "None"])
def test_ways_to_write_nothing(write, empty):
    table = read_table(write(f"date,load\n2024-01-01,1\n2024-01-02,{empty}\n2024-01-03,2\n"), "date", ["load"])
    np.testing.assert_array_equal(table.values[:, 0], [1, np.nan, 2])


def test_gzip_byte_order_mark_windows_lines_and_empty_lines(write, tmp_path):
    text = "\ufeff" + GOOD.replace("\n", "\r\n") + "\r\n"
    (tmp_path / "data.csv.GZ").write_bytes(gzip.compress(text.encode()))
    assert read_table(tmp_path / "data.csv.GZ", "date", None).values.shape == (3, 2)
    assert read_table(write(GOOD.replace("\n", "\n\n")), "date", None).lines == [3, 5, 7]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2024-03-31", "2024-03-31T00:00:00"),
        ("20240331", "2024-03-31T00:00:00"),
        ("2024-03-31 13:45", "2024-03-31T13:45:00"),
        (" 2024-03-31T13:45:10 ", "2024-03-31T13:45:10"),
        ("2024-03-31T13:45:10.000", "2024-03-31T13:45:10"),
        ("2024-03-31T13:45+02:00", "2024-03-31T11:45:00"),
        ("2024-03-31T23:00:00Z", "2024-03-31T23:00:00"),
    ],
)
def test_forms_of_times(write, text, time):
    table = read_table(write(f"date,load\n{text},1\n"), "date", None)
    assert str(table.times[0]) == time
    assert table.utc == ("Z" in text or "+" in text)


def test_columns_without_a_name_are_row_numbers(write):
    assert read_table(write(",date,load\n0,2024-01-01,1\n1,2024-01-02,2\n"), "date", None).names == ["load"]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", None, ": the file is empty; give a header and one row per time"),
        ("date,load\n", None, ": no rows below a header; give one row per time"),
        (
            "day,load\n2024-01-01,1\n",
            None,
            ": there is no column 'date', only 'day', 'load'; set --data.time_column NAME",
        ),
        (
            "Date,load\n2024-01-01,1\n",
            None,
            ": there is no column 'date', only 'Date', 'load'; set --data.time_column Date",
        ),
        (
            "date,load\n2024-01-01,1\n",
            ["laod"],
            ": there is no column 'laod', only 'date', 'load'; set --data.targets '[load]'",
        ),
        (
            "date;load\n2024-01-01;1\n",
            None,
            ": there is no column 'date', only 'date;load'; separate the values by commas, and decimals by points",
        ),
        ("date,load,load\n2024-01-01,1,2\n", ["load"], ": there are 2 columns 'load'; rename all but one"),
        ("date,load,load\n2024-01-01,1,2\n", None, ": there are 2 columns 'load'; rename all but one"),
        ("date,place\n2024-01-01,a\n", None, ": there is no column of numbers besides 'date'; add one"),
        (
            "date,load\n2024-01-01,1\n2024-01-02,2\n2024-01-03,x\n2024-01-04,y\n2024-01-05,5\n",
            None,
            ": 2 of 5 rows can't be used: line 4 (column 'load' is 'x', not a number), line 5 (column 'load' is 'y', "
            "not a number); correct or delete them, or use --data.bad_rows drop",
        ),
        (
            "date,load\n2024-01-01,1\n2024-01-02,inf\n",
            ["load"],
            ", line 3: column 'load' is 'inf', not a finite number" + REMEDY,
        ),
        (
            "date,load\n2024-01-01,1\n\n2024-01-02\n",
            None,
            ", line 4: 1 field instead of 2" + REMEDY,
        ),
        ("date,load\n2024-01-02,1\n2024-01-01,1,\n", None, ", line 3: 3 fields instead of 2" + REMEDY),
        (
            "date,load\n2024-01-01,1\n01/02/2024,2\n",
            None,
            ", line 3: column 'date' is '01/02/2024', not a time, as day and month could be either way round: write "
            "it like 2024-01-31 13:00:00" + REMEDY,
        ),
        (
            "date,load\n,1\n2024-01-01,1\n",
            None,
            ", line 2: column 'date' is '', not a time: write it like 2024-01-31 13:00:00" + REMEDY,
        ),
        (
            "date,load\n2024-01-01,1\n2024-01-01 00:00:00.5,1\n",
            None,
            ", line 3: column 'date' is '2024-01-01 00:00:00.5', not a time (times finer than a second are not "
            "supported)" + REMEDY,
        ),
        (
            "date,load\n2024-01-01T00Z,1\n2024-01-01T01,1\n",
            None,
            ", line 3: column 'date' is '2024-01-01T01', with no UTC offset: most rows have one" + REMEDY,
        ),
    ],
)
def test_one_line_for_each_mistake(write, text, columns, message):
    path = write(text)
    with pytest.raises(UserError) as error:
        read(path, columns)
    assert str(error.value) == f"{path}{message}"


def test_what_a_checkpoint_needs_is_said_differently(write):
    with pytest.raises(UserError, match=r"there is no column 'cold', only 'date', .*; the checkpoint needs it$"):
        read_table(write(GOOD), "date", ["load", "cold"], trained=True)


def test_unreadable_files(tmp_path, write):
    with pytest.raises(UserError, match=r"^data\.path: there is no file .*none\.csv$"):
        read_table(tmp_path / "none.csv", "date", None)
    with pytest.raises(UserError, match=r"^data\.path: .* is a folder; give a file$"):
        read_table(tmp_path, "date", None)
    (tmp_path / "latin.csv").write_bytes("date,load\n2024-01-01,1\n2024-01-02,é\n".encode("latin-1"))
    bad = read_table(tmp_path / "latin.csv", "date", None).bad
    assert bad.problems == {3: "not UTF-8, byte 0xe9: save it as UTF-8 (in spreadsheets: CSV UTF-8)"}
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(GOOD.encode())[:30])
    with pytest.raises(UserError, match=r"cut\.csv\.gz: the gzip file is damaged \("):
        read_table(tmp_path / "cut.csv.gz", "date", None)
    for text, line in (('date,load\n2024-01-01,1\n2024-01-02,"2\n2024-01-03,3\n', 3), ('"date,load\n1,2\n', 1)):
        with pytest.raises(UserError, match=rf", line {line}: broken quoting \(.*\); quotes inside a quoted text are"):
            read_table(write(text), "date", None)
