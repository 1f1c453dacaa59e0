"""The user's tables: how they are written, and what is said of those that can't be read."""

import gzip
from pathlib import Path

import pandas as pd
import pytest

from litlab.data.files import FileFormat, read_cells
from tests.litlab.data.conftest import refusal


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter):
    text, path = "\ufeffa,b\n1,x\n2,y".replace(",", delimiter).encode(), Path("my.csv.gz")
    path.write_bytes(gzip.compress(text))
    for source in (text, path):
        assert read_cells(source).to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}
    assert read_cells(b"a:b\n1:x\n", FileFormat(":")).columns.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": "x"}\n\n{"a": null, "b": "y \u2028 z"}\n',
        '\ufeff [{"a": 1, "b": "x"}, {"b": "y \u2028 z"}]\n',
        '[\n {"a": 1,\n  "b": "x"},\n {"a": null, "b": "y \u2028 z"}\n]',
    ],
)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_json(text, suffix):
    """A list of objects, or one a line; a sign that ends lines elsewhere ends none here."""
    path = Path(f"my.{suffix}")
    path.write_text(text, "utf-8")
    rows = read_cells(path).fillna("missing").to_dict()
    assert rows == {"a": {1: 1, 2: "missing"}, "b": {1: "x", 2: "y \u2028 z"}}


def test_cells_and_rows():
    content = b' a ,b,,c\n1 , two words,0,?\n\n , ,1,\n"x,\n""y""",NA,2,-999\n'
    # A column without a name numbers the rows; empty rows count
    columns = {"a": ["1", 'x,\n"y"'], "b": ["two words", "NA"], "c": ["?", "-999"]}
    pd.testing.assert_frame_equal(read_cells(content), pd.DataFrame(columns, [2, 5]))
    assert read_cells(b"1,x\n2,y\n", names=["n", "t"]).index.tolist() == [1, 2]


def test_an_index_with_a_name_is_a_column():
    frame = pd.DataFrame({"a": [1, 2]}, pd.Index(["x", "y"], name="b"))
    frame.to_parquet("my.parquet")
    for source in (frame, Path("my.parquet")):
        assert read_cells(source).to_dict() == {"b": {1: "x", 2: "y"}, "a": {1: 1, 2: 2}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n", "data.path: there are no rows; give one for each sample"),
        (b"a,b, a\n1,2,3\n", "data.path: two columns are called 'a'; rename one, or add"),
        (b"a,b\n1,2\n3,4,5\n", "data.path: it can't be read (Error tokenizing data. C error: "),
        ("gone.csv", "data.path: there is no file gone.csv"),
    ],
)  # fmt: skip
def test_files_that_can_not_be_read(content, message):
    assert refusal(read_cells, content).startswith(message)


def test_excel():
    """Empty columns, formulas without results, merged cells."""
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    for row in (["a", None, "b"], [1, None, "x"], [2, None, None]):
        sheet.append(row)
    path = Path("my.xlsx")
    book.save(path)
    frame = read_cells(path)
    assert (frame.columns.tolist(), frame.index.tolist()) == (["a", "b"], [2, 3])
    Workbook().save("empty.xlsx")
    assert (
        refusal(read_cells, "empty.xlsx")
        == "empty.xlsx: there are no rows; give one for each sample"
    )
    sheet["A3"] = "=A2+1"
    book.save(path)
    assert "row 3, column 1 holds a formula without its result; open" in refusal(read_cells, path)
    sheet.merge_cells("C2:C3")
    book.save(path)
    assert "cells C2:C3 are merged, and only the first" in refusal(read_cells, path)


def test_what_other_programs_leave_in_a_csv_file():
    frame = read_cells(b"sep=:\na:b\n1:x\n")
    assert (frame.columns.tolist(), frame.index.tolist()) == (["a", "b"], [3])
    rows = b"".join(b"%d,y,z\n" % number for number in range(60))
    swallowed = b'a,b,c\n1,"x,z\n' + rows + b'2,y",z\n'
    message = "data.path: row 2 has a quote that swallows the 60 rows after it; remove it"
    assert refusal(read_cells, swallowed).startswith(message)
    text = b'a,b,c\n1,"a letter,\nof five\nlines, with\ncommas\nin it",z\n'
    assert read_cells(text)["a"].tolist() == ["1"]
