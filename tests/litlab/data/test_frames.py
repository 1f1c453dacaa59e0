"""The user's tables: how they are written, what cells say, and what is said of those that say
nothing.
"""

import gzip

import numpy as np
import pandas as pd
import pytest

from litlab.data.frames import FileFormat, read_frame, read_times, to_numbers
from tests.litlab.data.conftest import refusal

PLAIN, COMMA = FileFormat(), FileFormat(decimal=",")


def numbers(*cells, form=PLAIN):
    """What cells are as numbers, and which of them are none."""
    values, wrong = to_numbers(pd.Series(cells, name="a"), form)
    return values.tolist(), [cell for cell, is_wrong in zip(cells, wrong, strict=True) if is_wrong]


def times(*cells, time_format=None):
    column = read_times(pd.Series(cells, name="date"), FileFormat(time_format=time_format))
    return [None if pd.isna(time) else str(time) for time in column]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(tmp_path, delimiter):
    text, path = (
        f"\ufeffa{delimiter}b\n1{delimiter}x\n2{delimiter}y".encode(),
        tmp_path / "my.csv.gz",
    )
    path.write_bytes(gzip.compress(text))
    for source in (text, path):
        frame = read_frame(source)
        assert frame.to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}
        assert frame.index.tolist() == [2, 3]  # as a spreadsheet counts
    assert read_frame(b"a:b\n1:x\n", FileFormat(":")).columns.tolist() == ["a", "b"]


def test_files_of_other_programs_and_frames(tmp_path):
    expected = pd.DataFrame({"a": [1, 2], "b": ["x", "NA"]})
    expected.to_parquet(tmp_path / "my.parquet")
    expected.to_excel(tmp_path / "my.xlsx", index=False)
    expected.to_json(tmp_path / "my.jsonl", orient="records", lines=True)
    files = {tmp_path / "my.parquet": 1, tmp_path / "my.jsonl": 1, tmp_path / "my.xlsx": 2}
    for source, first in [*files.items(), (expected.set_index(pd.Index([7, 7])), 1)]:
        frame = read_frame(source)
        assert frame["a"].to_dict() == {first: 1, first + 1: 2}
        assert frame["b"].isna().tolist() == [False, True]
    assert expected["b"].tolist() == ["x", "NA"]  # it was copied


def test_cells_and_rows():
    content = b' a ,b,,c\n1 , two words,0,?\n\n , ,1,\n"x,\n""y""",NA,2,-999\n'
    frame = read_frame(content, FileFormat(missing=("?", "-999")))
    assert frame.columns.tolist() == ["a", "b", "c"]  # one without a name numbers the rows
    assert frame["a"].tolist() == ["1", 'x,\n"y"']
    assert frame["b"].isna().tolist() == [False, True]
    assert frame["c"].isna().all()
    assert frame.index.tolist() == [2, 5]  # empty rows count
    assert read_frame(b"1,x\n2,y\n", names=["n", "t"]).index.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n", "data.path: there are no rows; give one for each sample"),
        (b"a,b, a\n1,2,3\n", "data.path: two columns are called 'a'; rename one"),
        (b"a,b\n1,2\n3,4,5\n", "data.path: it can't be read ("),
        ("gone.csv", "data.path: there is no file gone.csv"),
    ],
)
def test_files_that_can_not_be_read(content, message):
    assert refusal(read_frame, content).startswith(message)


def test_numbers():
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert numbers("1", "-2.5", "1e3", "+.5", None) == ([1.0, -2.5, 1000.0, 0.5, nan], [])
    # Python's float reads the first two
    odd = ["2019_20", "1_1", "1st", "<=3cm", "1,5", "inf", "0x10", "1 000"]
    assert numbers("1", *odd, *"23456789") == ([1.0, *[nan] * 8, *map(float, range(2, 10))], odd)
    assert numbers(1, 2.5, np.inf) == ([1.0, 2.5, nan], [np.inf])
    assert numbers(True, False)[0] == [1.0, 0.0]


def test_decimal_commas():
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert numbers("1,5", "-2", "1.234,5", "1.234.567", "12.5", form=COMMA) == (
        [1.5, -2.0, 1234.5, 1234567.0, nan], ["12.5"]
    )  # fmt: skip
    assert refusal(numbers, "1,5", "2,5", "3") == (
        "data.path: column 'a' has another decimal sign, as '1,5'; set --data.decimal ,"
    )


def test_times_that_can_not_be_misread():
    cells = {
        "2010/01/01": "2010-01-01 00:00:00",
        "1949-01": "1949-01-01 00:00:00",
        "Jan 1 2000": "2000-01-01 00:00:00",
        "20240102T030405": "2024-01-02 03:04:05",
        "13/01/2024": "2024-01-13 00:00:00",
        "1700000000": "2023-11-14 22:13:20",
        "no time": None,
    }
    assert {cell: times(cell)[0] for cell in cells} == cells
    assert times(1_700_000_000, None) == ["2023-11-14 22:13:20", None]


def test_times_with_offsets_are_in_utc_but_for_days_of_a_clock():
    # Daylight saving began between
    days = ["2024-03-30T00:00:00+01:00", "2024-04-01T00:00:00+02:00", "2024-04-02"]
    assert times(*days) == ["2024-03-30 00:00:00", "2024-04-01 00:00:00", None]
    hours = "2024-03-30T00:00:00+01:00", "2024-04-01T01:00:00+02:00"
    assert times(*hours) == ["2024-03-29 23:00:00+00:00", "2024-03-31 23:00:00+00:00"]
    stamps = pd.Series(pd.to_datetime(["2024-03-30", "2024-04-01"])).dt.tz_localize("Europe/Berlin")
    assert read_times(stamps, PLAIN).astype(str).tolist() == ["2024-03-30", "2024-04-01"]


def test_ambiguous_dates_are_refused_with_the_setting_that_decides():
    assert refusal(times, "13/02/2024", "01/02/2024") == (
        "data.path: '01/02/2024' in column 'date' could be day or month first; set "
        "--data.time_format, such as '%d/%m/%Y' or '%m/%d/%Y %H:%M'"
    )
    assert times("01/02/2024", "2024-01-02", time_format="%d/%m/%Y") == [
        "2024-02-01 00:00:00",
        None,
    ]
