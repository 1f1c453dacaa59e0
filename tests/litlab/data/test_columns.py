"""What cells mean: the same value is the same, however it is written, and what can't be told is
said.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import Table, parquet

from litlab.data.cells import read_numbers, read_texts
from litlab.data.columns import fit_column, read_columns
from litlab.data.files import FileFormat, read_cells
from litlab.data.times import read_times
from tests.litlab.data.conftest import refusal

PLAIN = FileFormat()
NAN = pytest.approx(float("nan"), nan_ok=True)


def numbers(*cells, **form):
    return read_numbers(pd.Series(cells, name="a"), FileFormat(**form), "data.path").tolist()


def categories(*cells, **form):
    texts = read_texts(pd.Series(cells, name="a"), FileFormat(**form))
    return [None if pd.isna(text) else text for text in texts]


def times(*cells, **form):
    column = pd.Series(cells, name="date")
    values, zone = read_times(column, FileFormat(**form), "data.path", "any")
    return [None if pd.isna(time) else str(time) for time in values], zone


@pytest.mark.parametrize(
    "same",
    [
        (205, 205.0, "205", "205.0", "+205", np.int64(205), np.float32(205)),
        (True, "TRUE", "true", "True", np.bool_(True)),
        (0.1, "0.1", "0.10", np.float32(0.1)),
        ("é", "e\u0301"),
        (1e-7, "0.0000001"),
        (-3, "-3.00"),
    ],
)
def test_the_same_category_written_another_way(same):
    assert len({categories(cell)[0] for cell in same}) == 1


def test_what_is_not_the_same():
    for cells in (("01", "1"), ("pos", "POS"), ("1e5", "100000"), (True, 1), ("1.10.2", "1.1.2")):
        assert len({*categories(*cells)}) == 2
    assert categories("NA", "None", None, np.nan, "n/a") == ["NA", "None", None, None, "n/a"]
    assert categories("?", "x", missing=("?",)) == [None, "x"]
    assert categories("1,50", "1.5", decimal=",") == ["1.5", "1.5"]
    assert categories("1,129", "1129", thousands=",") == ["1129", "1129"]


def test_what_looks_the_same_is_said(said):
    for cells in (
        ["pos", "POS", "pos", "1", "01", "x"],
        ["audi 100 ls", "audi 100ls"],
        ["B 07", "b7"],
        ["a  b", "a b"],
        # Nothing is said of these
        ["2012-01-01 10:00", "2012-01-11 00:00"],
        ["1 10", "11 0"],
    ):
        fit_column(pd.Series(cells, name="a"), "category", PLAIN, "f.csv")
    assert "column 'a' has 'pos' (2) and 'POS' (1), and 1 more like that" in said[0]
    assert len(said) == 4


def test_numbers():
    assert numbers("1", "-2.5", "1e3", "+.5", None) == [1.0, -2.5, 1000.0, 0.5, NAN]
    # Python's float reads the first two
    odd = ["2019_20", "1_1", "1st", "<=3cm", "inf", "0x10"]
    assert numbers("1", *odd, *"23456789") == [1.0, *[NAN] * 6, *map(float, range(2, 10))]
    assert numbers(1, 2.5, np.inf) == [1.0, 2.5, NAN]
    assert numbers("1,5", "-2", "12.5", "0.125", decimal=",") == [1.5, -2.0, NAN, NAN]
    assert numbers("1,129", "49,194.5", "800", thousands=",") == [1129.0, 49194.5, 800.0]
    swiss = ["1\u202f129", "49\u00a0194", "1 2"]
    assert numbers(*swiss, thousands=" ") == [1129.0, 49194.0, NAN]
    # With groups of points 0.125 is no 125
    assert numbers("1.129,5", "52.520", "0.125", decimal=",", thousands=".") == [1129.5, 52520, NAN]


@pytest.mark.parametrize("cell", ["41.2%", "3 kg", "$5", "20°C"])
def test_numbers_with_units_are_named(cell):
    assert f"numbers with a unit, as {cell!r}" in refusal(numbers, cell, cell, "7")
    fit_column(pd.Series([cell, "B52"] * 9, name="a"), "input", PLAIN, "f.csv")  # categories


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"a": ["49.194", "7"], "b": ["x", "y"], "c": ["1.000", "2.000"]}, "'a', 'c'"),
        ({"a": ["49.194", "1.129"], "b": ["0.5", "2"]}, None),  # where it is the decimal sign
        ({"a": ["0.194", "1.129"]}, None),
    ],
)
def test_points_that_may_stand_between_thousands_are_said_once_a_file(said, columns, names):
    raw = pd.DataFrame(columns, dtype=object)
    kinds = {name: fit_column(raw[name], "input", PLAIN, "f.csv") for name in raw}
    read_columns(raw, kinds, PLAIN, "f.csv")
    message = f"f.csv: three digits stand behind every point of {names}, as in 49.194; if points"
    assert len(said) == (names is not None)
    assert all(message in line for line in said)


def test_times_that_can_not_be_misread():
    cells = {
        "2010/01/01": "2010-01-01 00:00:00",
        "1949-01": "1949-01-01 00:00:00",
        "Jan 1 2000": "2000-01-01 00:00:00",
        "20240102T030405": "2024-01-02 03:04:05",
        "13/01/2024": "2024-01-13 00:00:00",
        "01/15/2024 1:30 PM": "2024-01-15 13:30:00",
        "1700000000": "2023-11-14 22:13:20",
        "1700000000000": "2023-11-14 22:13:20",
        "1700000000000000": "2023-11-14 22:13:20",
        "1700000000000000000": "2023-11-14 22:13:20",
        # Neither seconds nor milliseconds
        "2024013112": "2024-01-31 12:00:00",
        "202401311230": "2024-01-31 12:30:00",
        "20240131123045": "2024-01-31 12:30:45",
        "45000.5": "2023-03-15 12:00:00",  # days of a spreadsheet
        "9-Sep-03": "2003-09-09 00:00:00",
        "Jan 13, 2024 1 PM": "2024-01-13 13:00:00",
        "13 January 2024 05:00 UTC": "2024-01-13 05:00:00",
        "01/13/2024 1:30 PM GMT": "2024-01-13 13:30:00",
        "2024-01-13 05:00:00+00": "2024-01-13 05:00:00",
        # Years with months as fractions, or with months
        "1949.08333333": "1949-02-01 00:00:00",
        "1949.5": "1949-07-01 00:00:00",
        "1949.92": "1949-12-01 00:00:00",
        "2010.05": "2010-05-01 00:00:00",
        "1997": "1997-01-01 00:00:00",
        "no time": None,
        "1997.4950": None,
        "99-12-31": "1999-12-31 00:00:00",
        # Neither of today nor of the year 1
        **dict.fromkeys(["12:30", "now", "Today", "5 Jan", "Jan-20", "May", "10h", "-5"]),
    }
    assert {cell: times(cell)[0][0] for cell in cells} == cells
    assert times(1949, None, "1949.25")[0] == ["1949-01-01 00:00:00", None, "1949-04-01 00:00:00"]
    # One cell of another kind is a bad row, and changes no other
    for good, bad in ((1_700_000_000, "2024-01-31"), ("2024013112", "2024990012")):
        assert times(good, None, bad, good)[0] == [cells[str(good)], None, None, cells[str(good)]]


def test_times_with_offsets_are_in_utc_but_for_days_of_a_clock():
    # Daylight saving began between
    days = ["2024-03-30T00:00:00+01:00", "2024-04-01T00:00:00+02:00", "2024-04-02"]
    assert times(*days) == (["2024-03-30 00:00:00", "2024-04-01 00:00:00", None], "wall")
    hours = ["2024-03-30T00:00:00+01:00", "2024-03-31 23:00 UTC"]
    assert times(*hours) == (["2024-03-29 23:00:00+00:00", "2024-03-31 23:00:00+00:00"], "UTC")
    stamps = pd.Series(pd.to_datetime(["2024-03-30", "2024-04-01"])).dt.tz_localize("Europe/Berlin")
    assert read_times(stamps, PLAIN, "f")[0].astype(str).tolist() == ["2024-03-30", "2024-04-01"]


def test_ambiguous_dates_are_refused_with_the_setting_that_decides():
    message = refusal(times, "13/02/2024", "01/02/2024")
    assert "'01/02/2024' in column 'date' could be day or month first; set --data.time_f" in message
    for cell in ("20-01-02", "13/12/02 10:00", "31.12.20"):
        assert f"{cell!r} in column 'date' could be day, month or year first" in refusal(
            times, cell
        )
    formats = {
        "%d/%m/%Y": ("01/02/2024", "2024-02-01 00:00:00"),
        "%y-%m-%d": ("20-01-02", "2020-01-02 00:00:00"),
        # Without it seconds, or days of a spreadsheet
        "%d%m%Y%H": ("0102202410", "2024-02-01 10:00:00"),
        "%y%j": ("24032", "2024-02-01 00:00:00"),
    }
    for time_format, (cell, time) in formats.items():
        assert times(cell, None, time_format=time_format)[0] == [time, None]
    assert times("01/02/2024", "2024-01-02", time_format="%d/%m/%Y")[0][1] is None


KINDS = dict.fromkeys(["zip", "id", "flag", "code"], "category") | {"share": "number"}
ROWS = pd.DataFrame(  # cells of all kinds, as Python has them
    {
        "code": ["01", "1", "NA", "None", "x;y", " é ", "e\u0301", "pos", "TRUE", "1e5", None],
        "zip": [1, *range(98_765, 98_774), None],
        "id": [*range(2**53, 2**53 + 9), None, 5],  # floats have no digits for them
        "flag": [True, False, None, True, *[False] * 7],
        "share": [1234.5, -0.125, None, 98_765.432, -1_234_567.25, 0.1, 7.0, 12.5, 2.0, -3.5, 1e-3],
    },
    dtype=object,
)


@pytest.fixture
def files():
    """The rows in files of all kinds, and how they are written."""
    parquet.write_table(Table.from_pydict(ROWS.to_dict("list")), "a.parquet")
    ROWS.to_excel("a.xlsx", index=False)
    ROWS.to_json("a.jsonl", orient="records", lines=True)
    ROWS.astype({"zip": "Float64"}).to_csv("a.csv", index=False)  # 205.0
    shares = [x and f"{x:,}".translate(str.maketrans(",.", ".,")) for x in ROWS["share"]]
    ROWS.assign(share=shares).to_csv("german.csv", index=False, sep=";")
    plain = {name: (Path(name), PLAIN) for name in ("a.parquet", "a.xlsx", "a.jsonl", "a.csv")}
    german = Path("german.csv"), FileFormat(decimal=",", thousands=".")
    return {"frame": (ROWS, PLAIN), **plain, "german.csv": german}


@pytest.mark.parametrize("first", ["frame", "a.csv", "german.csv"])
def test_a_file_of_another_kind_is_the_same_table(files, first):
    """Whatever kind of file a model was trained on, and whatever kind is predicted."""
    source, form = files[first]
    raw = read_cells(source, form)
    assert raw.index[0] == (1 if first == "frame" else 2)  # as a spreadsheet counts
    columns = {name: fit_column(raw[name], kind, form, "f") for name, kind in KINDS.items()}
    expected = ROWS.assign(**{name: ROWS[name].map(str) for name in ("zip", "id", "flag")})
    expected["code"] = ["01", "1", "NA", "None", "x;y", "é", "é", "pos", "True", "1e5", None]
    expected = expected.astype(object).where(ROWS.notna(), None)
    for name, (other, other_form) in files.items():
        table = read_columns(read_cells(other, other_form), columns, other_form, "f")
        found = table.astype(object).where(table.notna(), None)
        # Excel's numbers have 15 digits
        lost = ["id"] if name == "a.xlsx" else []
        pd.testing.assert_frame_equal(
            *(each.drop(columns=lost).reset_index(drop=True) for each in (found, expected)),
            check_like=True, rtol=0, atol=0,
        )  # fmt: skip
