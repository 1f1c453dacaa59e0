"""The user's tables: how they are written, what cells say, and what is said of those that say nothing."""

import gzip

import numpy as np
import pandas as pd
import pytest

from litlab.data.frames import FileFormat, check_columns, drop_bad_rows, read_frame, read_times, to_numbers
from tests.litlab.data.conftest import refusal

PLAIN, COMMA = FileFormat(), FileFormat(decimal=",")


@pytest.fixture
def write(tmp_path):
    def write_file(content: str | bytes, name: str = "my.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def numbers(*cells, form=PLAIN):
    """What cells are as numbers, and which of them are none."""
    values, wrong = to_numbers(pd.Series(cells, name="a"), form)
    return values.tolist(), [cell for cell, is_wrong in zip(cells, wrong, strict=True) if is_wrong]


def times(*cells, time_format=None):
    column = read_times(pd.Series(cells, name="date"), FileFormat(time_format=time_format))
    return [None if pd.isna(time) else str(time) for time in column]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(write, delimiter):
    text = "\n".join(delimiter.join(row) for row in (["a", "b"], ["1", "x"], ["2", "y"]))
    for source in (text.encode(), write("\ufeff" + text), write(gzip.compress(text.encode()), "my.csv.gz")):
        frame = read_frame(source)
        assert frame.to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}
        assert frame.index.tolist() == [2, 3]  # as a spreadsheet counts
    assert read_frame(write("a:b\n1:x\n"), FileFormat(":")).columns.tolist() == ["a", "b"]


def test_files_of_other_programs_and_frames(write, tmp_path):
    expected = pd.DataFrame({"a": [1, 2], "b": ["x", "NA"]})
    expected.to_parquet(tmp_path / "my.parquet")
    write('{"a": 1, "b": "x"}\n{"a": 2, "b": "NA"}\n', "my.jsonl")
    sources = [(tmp_path / "my.parquet", 1), (tmp_path / "my.jsonl", 1), (expected.set_index(pd.Index([7, 7])), 1)]
    if pytest.importorskip("openpyxl", reason="Excel needs openpyxl"):
        expected.to_excel(tmp_path / "my.xlsx", index=False)
        sources.append((tmp_path / "my.xlsx", 2))
    for source, first in sources:
        frame = read_frame(source)
        assert frame["a"].tolist() == [1, 2]
        assert frame["b"].isna().tolist() == [False, True]
        assert frame.index.tolist() == [first, first + 1]
    assert expected["b"].tolist() == ["x", "NA"]  # it was copied


def test_cells_and_rows(write):
    path = write(' a ,b,,c\n1 , two words,0,?\n\n , ,1,\n"x,\n""y""",NA,2,-999\n')
    frame = read_frame(path, FileFormat(missing=("?", "-999")))
    assert frame.columns.tolist() == ["a", "b", "c"]  # one without a name numbers the rows
    assert frame["a"].tolist() == ["1", 'x,\n"y"']
    assert frame["b"].isna().tolist() == [False, True]
    assert frame["c"].isna().all()
    assert frame.index.tolist() == [2, 5]  # empty rows count
    assert read_frame(write("1,x\n2,y\n"), names=["n", "t"]).index.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "my.csv: it can't be read (No columns to parse from file)"),
        ("a,b\n", "my.csv: there are no rows; give one for each sample"),
        ("a,b, a\n1,2,3\n", "my.csv: two columns are called 'a'; rename one"),
        ("a,b\n1,2\n3,4,5\n", "my.csv: it can't be read ("),
        (b"a,b\ncaf\xe9,2\n", "my.csv: it can't be read ('utf-8' codec can't decode"),
    ],
)
def test_files_that_can_not_be_read(write, content, message):
    path = write(content)
    assert refusal(read_frame, path).replace(f"{path.parent}/", "").startswith(message)


def test_a_missing_column_names_the_nearest():
    frame = pd.DataFrame(columns=["target", *"bcdefghi"])
    assert refusal(check_columns, frame, "my.csv", {"b": "", "Targets": "set --data.target"}) == (
        "my.csv: there is no column 'Targets', only 'target', 'b', 'c', 'd' and 5 more; did you mean 'target'?"
    )
    assert refusal(check_columns, frame, "my.csv", {"price": "set it"}).endswith(" 5 more; set it")


def test_numbers():
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert numbers("1", "-2.5", "1e3", "+.5", None) == ([1.0, -2.5, 1000.0, 0.5, nan], [])
    odd = ["2019_20", "1_1", "1st", "<=3cm", "1,5", "inf", "0x10", "1 000"]  # Python's float reads the first two
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


@pytest.mark.parametrize(
    ("cell", "time"),
    [
        ("2010/01/01", "2010-01-01 00:00:00"),
        ("1949-01", "1949-01-01 00:00:00"),
        ("Jan 1 2000", "2000-01-01 00:00:00"),
        ("2024-01-02 03:04", "2024-01-02 03:04:00"),
        ("20240102T030405", "2024-01-02 03:04:05"),
        ("13/01/2024", "2024-01-13 00:00:00"),
        ("1700000000", "2023-11-14 22:13:20"),
        (1_700_000_000, "2023-11-14 22:13:20"),
        ("no time", None),
        (None, None),
    ],
)
def test_times_that_can_not_be_misread(cell, time):
    assert times(cell) == [time]


def test_times_with_offsets_are_in_utc_but_for_days_of_a_clock():
    days = ["2024-03-30T00:00:00+01:00", "2024-04-01T00:00:00+02:00", "2024-04-02"]  # daylight saving began between
    assert times(*days) == ["2024-03-30 00:00:00", "2024-04-01 00:00:00", None]
    hours = "2024-03-30T00:00:00+01:00", "2024-04-01T01:00:00+02:00"
    assert times(*hours) == ["2024-03-29 23:00:00+00:00", "2024-03-31 23:00:00+00:00"]
    stamps = pd.Series(pd.to_datetime(["2024-03-30", "2024-04-01"])).dt.tz_localize("Europe/Berlin")
    assert read_times(stamps, PLAIN).astype(str).tolist() == ["2024-03-30", "2024-04-01"]


def test_ambiguous_dates_are_refused_with_the_setting_that_decides():
    assert refusal(times, "13/02/2024", "01/02/2024") == (
        "data.path: '01/02/2024' in column 'date' could be day or month first; set --data.time_format, such as "
        "'%d/%m/%Y' or '%m/%d/%Y %H:%M'"
    )
    assert times("01/02/2024", "2024-01-02", time_format="%d/%m/%Y") == ["2024-02-01 00:00:00", None]


def test_bad_rows_are_named_or_left_out(caplog):
    frame = pd.DataFrame({"a": range(9)}, index=range(2, 11))
    assert drop_bad_rows(frame, {}, "error", "my.csv") is frame
    problems = {row: f"'{row}' is no number" for row in (2, 4, 6, 8)}
    summary = "my.csv: 4 of 9 rows can't be used: row 2 ('2' is no number), row 4 ('4' is no number), row 6 ('6' is no "
    summary += "number) and 1 more; "
    remedy = "correct or delete them, or use --data.bad_rows drop"
    assert refusal(drop_bad_rows, frame, problems, "error", "my.csv") == summary + remedy
    with caplog.at_level("INFO", "lightning.pytorch.utilities.rank_zero"):
        assert drop_bad_rows(frame, problems, "drop", "my.csv").index.tolist() == [3, 5, 7, 9, 10]
    assert caplog.messages == [f"{summary}they are left out (data.bad_rows)"]
    all_bad = refusal(drop_bad_rows, frame, dict.fromkeys(frame.index, "bad"), "drop", "my.csv")
    assert all_bad.endswith("; correct or delete them")
