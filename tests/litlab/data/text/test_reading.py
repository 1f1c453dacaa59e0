"""What tables say: every format, rows that can't be used, the order of classes, texts to predict."""

import pytest

from litlab.data.text.reading import read_corpus, read_input, read_rows
from tests.litlab.data.conftest import refusal

TABLE = {
    "columns": None, "text_columns": ["text"], "label_column": "label", "delimiter": None, "bad_rows": "error",
}  # fmt: skip
DROP = {**TABLE, "bad_rows": "drop"}


@pytest.fixture
def write(tmp_path):
    def write_file(content: str, name: str = "my.csv"):
        (tmp_path / name).write_text(content, newline="")
        return tmp_path / name

    return write_file


def test_bad_rows(write, said):
    path = write("text,label\nfirst,1\nsecond,2\n,2\nsixth,null\nx,NA\n")  # NA trained as a class
    summary = f"{path}: 3 of 5 rows can't be used: row 4 (no text), row 5 (no label), row 6 (no label); "
    message = f"{summary}correct or delete them, or use --data.bad_rows drop"
    assert refusal(read_corpus, {"train": path}, TABLE) == message
    rows = read_rows(path, DROP)
    assert rows.index.tolist() == [2, 3]
    assert rows["label"].tolist() == ["1", "2"], "missing ones do not turn numbers into other classes"
    assert said == [f"{summary}they are left out (data.bad_rows)"]


def test_columns_that_do_not_fit(write):
    path = write("text,y\na,b\n")
    message = f"{path}: there is no column 'label', only 'text', 'y'; set data.text_columns and data.label_column"
    assert refusal(read_rows, path, TABLE).startswith(message)


@pytest.mark.parametrize("expected", [["-1", "9", "10"], ["10", "9", "b"]])
def test_order_of_the_classes_also_of_one_in_the_test_alone(write, expected):
    path = write(f"text,label\na,{expected[1]}\nb,{expected[2]}\n")
    names, corpus = read_corpus({"train": path, "test": write(f"text,label\nx,{expected[0]}\n", "test.csv")}, TABLE)
    assert (names, corpus["label"].tolist()) == (expected, [1, 2, 0])
    assert corpus["split"].tolist() == ["train", "train", "test"]


def test_input_to_predict(write):
    def read(path, **options):
        return read_input(str(path), {**TABLE, **options})

    assert read(write("one\r\n\r\nNA \u2028 parts\n", "in.txt")) == {1: "one", 3: "NA \u2028 parts"}
    path = write("text;x\none;1\n;2\nthree;3\n")  # without labels
    assert read(path, bad_rows="drop") == {2: "one", 4: "three"}
    assert refusal(read, path).startswith(f"{path}: 1 of 3 rows can't be used: row 3 (no text); correct or delete")
    assert refusal(read, f"{path}.txt").startswith("--input: there is no file ")
