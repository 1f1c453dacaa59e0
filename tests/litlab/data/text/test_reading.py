"""What files say, and the one line for each that can't be read."""

import gzip

import pytest

from litlab.data.text.predictions import read_input
from litlab.data.text.reading import read_rows
from litlab.data.text.sources import csv_source
from litlab.errors import UserError
from tests.litlab.data.text.conftest import make_rows

REMEDY = "; correct or delete the row, or use --data.bad_rows drop"
GOOD = b"text,label\nfirst,a\nsecond,b\nthird,a\nfourth,b\n"


@pytest.fixture
def write(tmp_path):
    def write_file(content: bytes, name: str = "my.csv"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write_file


def refusal(path, **options):
    with pytest.raises(UserError) as error:
        csv_source(path, **{"test_path": None, "columns": None, "text_columns": ["text"], "label_column": "label",
                            **options}).read()  # fmt: skip
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(path.parent) + "/", "")


def test_rows(write):
    rows = read_rows(
        write(b'\xef\xbb\xbfn,text,label\r\n1, "b" x ,A\r\n\r\n2,"two\nlines, ""so""",B\r\n'), None, ["text"], "label"
    )
    assert rows.numbers == [2, 4]
    assert rows.texts == ['"b" x', 'two\nlines, "so"']
    assert rows.labels == ["A", "B"]


def test_gzip_is_known_by_its_contents(write):
    assert read_rows(write(gzip.compress(GOOD), "my.csv.gz"), None, ["text"], "label").labels == list("abab")
    assert read_rows(write(gzip.compress(GOOD), "my.csv"), None, ["text"], "label").labels == list("abab")


def test_a_text_may_be_very_long(write):
    text = b"word " * 50_000
    assert len(read_rows(write(b"text,label\n" + text + b",a\n"), None, ["text"], "label").texts[0]) == 249_999


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "my.csv: the file is empty; it needs a row per text"),
        (b"text,label\n", "my.csv: no rows below the column names; add one per text"),
        (
            b"texts,label\na,b\n",
            "my.csv: there is no column 'text', only 'texts', 'label'; set --data.text_columns '[texts]'",
        ),
        (
            b"review,label\na,b\n",
            "my.csv: there is no column 'text', only 'review', 'label'; set "
            "--data.text_columns '[NAME]', or name all columns with --data.columns if line 1 is a text",
        ),
        (
            b"text,y\na,b\n",
            "my.csv: there is no column 'label', only 'text', 'y'; set "
            "--data.label_column NAME, or name all columns with --data.columns if line 1 is a text",
        ),
        (
            b"text;label\na;b\n",
            "my.csv: there is no column 'text', only 'text;label'; separate the values by commas, "
            "and decimals by points",
        ),
        (b"text,label\na,b\nc,b,,\n", "my.csv, line 3: 4 fields instead of 2" + REMEDY),
        (b"text,label\na,b\n ,b\n", "my.csv, line 3: the text is empty" + REMEDY),
        (b"text,label\na,b\n\nc, \n", "my.csv, line 4: label is empty" + REMEDY),
        (
            GOOD + b"only one of its kind,c\n",
            "my.csv, line 6: the only one of class 'c', which can't be split into training and evaluation" + REMEDY,
        ),
        (b"text,label\na,b\nc,b\n", "my.csv: column label has only the class 'b'; 2 are needed"),
        (
            b"text,label\na,b\ncaf\xe9,b\n",
            "my.csv, line 3: not UTF-8, byte 0xe9: save it as UTF-8 (in spreadsheets: CSV UTF-8)" + REMEDY,
        ),
        (
            "text,label\n".encode("utf-16"),
            "my.csv: this is UTF-16, not UTF-8; save it as UTF-8 (in spreadsheets: CSV UTF-8)",
        ),
        (
            b"PK\x03\x04\x00\x00",
            "my.csv: this is not a text file, perhaps a spreadsheet or an archive; save it as CSV UTF-8",
        ),
        (
            b'text,label\na,b\n"open,b\nnext,b\n',
            "my.csv, line 3: broken quoting (a double quote is opened and never closed); quotes inside a quoted "
            "text are written twice",
        ),
        (
            b'text,label\n"a" b,c\nd,c\n',
            "my.csv, line 2: broken quoting, ',' expected after '\"': quotes inside a quoted text are written twice"
            + REMEDY,
        ),
        (
            b"text,label\na,b\nhello, world,b\n",
            "my.csv, line 3: 3 fields instead of 2: put texts with commas into double quotes" + REMEDY,
        ),
    ],
)
def test_bad_files(write, content, message):
    assert refusal(write(content)) == message


def test_bad_archives(write):
    whole = gzip.compress(GOOD * 100)
    for damaged in (whole[:-20], whole[:30] + b"xx" + whole[32:]):
        assert refusal(write(damaged, "my.csv.gz")).startswith("my.csv.gz: the gzip file is damaged (")
    message = "my.csv.gz: named .gz, but this is not a gzip file; rename it, or compress it again"
    assert refusal(write(GOOD, "my.csv.gz")) == message


def test_missing_files(write, tmp_path):
    path = write(GOOD)
    assert refusal(tmp_path / "no.csv") == "data.path: there is no file no.csv"
    assert refusal(path, test_path=tmp_path / "no.csv") == "data.test_path: there is no file no.csv"
    (tmp_path / "some.csv").mkdir()
    assert refusal(tmp_path / "some.csv") == "data.path: some.csv is a folder; give a file"
    with pytest.raises(UserError, match=r"^--input: .*some\.csv is a folder; give a file$"):
        read_input(str(tmp_path / "some.csv"), None, ["text"], "label")


def test_columns_of_one_name(write):
    path = write(b"text,text,label\n1,one,a\n2,two,b\n")
    assert refusal(path) == "my.csv: there are 2 columns 'text'; rename all but one"
    columns = ["text", "text", "label"]
    assert refusal(path, columns=columns) == "data.columns: there are 2 columns 'text'; rename all but one"


def test_spaces_around_column_names_do_not_count(write):
    rows = read_rows(write(b" text, label\none,a\n"), None, ["text"], "label")
    assert (rows.numbers, rows.texts, rows.labels) == ([2], ["one"], ["a"])


def test_what_a_hint_says_can_be_typed(write):
    """`--data.text_columns` takes a list."""
    assert refusal(write(b"texts,label\none,a\n")).endswith("; set --data.text_columns '[texts]'")
    assert refusal(write(b"text,labels\none,a\n")).endswith("; set --data.label_column labels")


def test_a_class_unseen_in_training(write):
    test = write(b"text,label\nx,a\ny,new\n", "test.csv")
    assert refusal(write(GOOD), test_path=test) == ("test.csv, line 3: class 'new' is not in my.csv" + REMEDY)


def test_columns_without_names(write):
    path = write(b"1,one,x\n2,two,y\n1,three,z\n2,four,z\n")
    options = {"columns": ["label", "text", "more"]}
    corpus = csv_source(path, None, ["label", "text", "more"], ["text", "more"], "label").read()
    assert corpus.texts["train"] == ["one x", "two y", "three z", "four z"]
    assert corpus.labels["train"].tolist() == [0, 1, 0, 1]
    assert refusal(path, columns=["label", "text"]) == (
        "my.csv, line 1: 3 fields, but data.columns names 2; make them agree"
    )
    assert refusal(path, **options, text_columns=["body"]) == (
        "data.text_columns: 'body' is not in data.columns (label, text, more); name one of these"
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "-1", "9", "10", "-1"], ["-1", "9", "10"]),
        (["b", "10", "9", "9", "10", "b"], ["10", "9", "b"]),
        (["2.5", "10", "2.5", "10"], ["2.5", "10"]),
    ],
)
def test_order_of_the_classes(write, labels, expected):
    path = write(b"text,label\n" + "".join(f"some text,{label}\n" for label in labels).encode())
    corpus = csv_source(path, None, None, ["text"], "label").read()
    assert corpus.class_names == expected
    assert [expected[i] for i in corpus.labels["train"].tolist()] == labels


def test_a_changed_file_has_another_digest(write):
    path = write(GOOD)
    first = csv_source(path, None, None, ["text"], "label").digest
    assert csv_source(path, None, None, ["text"], "label").digest == first
    path.write_bytes(GOOD + b"x,a\n")
    assert csv_source(path, None, None, ["text"], "label").digest != first


def test_input_to_predict(write):
    def texts(path, columns=None, text_columns=("text",)):
        return read_input(str(path), columns, list(text_columns), "label").texts

    assert texts(write(b"one\r\ntwo \xe2\x80\xa8 parts\n", "in.txt")) == ["one", "two \u2028 parts"]
    assert texts(write(gzip.compress(b"one\ntwo"), "in.txt.gz")) == ["one", "two"]
    assert texts(write(b"id,text\n1,one\n2,two\n")) == ["one", "two"]
    named = ["label", "text", "more"]
    assert texts(write(b"a,one,x\n"), named, ["text", "more"]) == ["one x"]
    assert texts(write(b"one,x\n"), named, ["text", "more"]) == ["one x"]  # without the labels
    assert texts(write(b"more,text\nx,one\n"), named, ["text", "more"]) == ["one x"]  # with names


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.txt", b"a\n\nb\n", "in.txt, line 2: the text is empty" + REMEDY),
        ("in.txt", b"", "in.txt: the file is empty; it needs a text per line"),
        ("in.csv", b'text\na\n" "\n', "in.csv, line 3: the text is empty" + REMEDY),
        (
            "in.json",
            b"{}",
            "--input in.json: neither .csv nor .txt; give a CSV file, or a .txt file with one text per line",
        ),
    ],
)
def test_bad_input_to_predict(write, name, content, message):
    path = write(content, name)
    with pytest.raises(UserError) as error:
        read_input(str(path), None, ["text"], "label")
    assert str(error.value).replace(str(path.parent) + "/", "") == message
    with pytest.raises(UserError, match=r"^--input: there is no file"):
        read_input(str(path.parent / "none.txt"), None, ["text"], "label")


def test_make_rows_has_no_two_alike():
    assert len({text for text, _ in make_rows(50)}) == 50
