"""What tables say: every format, rows that can't be used, the order of classes, texts to predict."""

import pandas as pd
import pytest

from litlab.data.text.reading import read_corpus, read_input, read_rows
from tests.litlab.data.conftest import refusal

TABLE = {
    "columns": None, "text_columns": ["text"], "label_column": "label", "delimiter": None, "bad_rows": "error",
}  # fmt: skip
DROP = {**TABLE, "bad_rows": "drop"}
GOOD = "text,label\nfirst,a\nsecond,b\nthird,a\nfourth,b\n"


@pytest.fixture
def write(tmp_path):
    def write_file(content: str, name: str = "my.csv"):
        (tmp_path / name).write_text(content, newline="")
        return tmp_path / name

    return write_file


def test_texts_keep_lines_and_quotes_and_rows_their_numbers(write):
    rows = read_rows(write('\ufeffn,text,label\r\n1,"x, ""so"" ",A\r\n\r\n2,"two\nlines", B\r\n3,y,A\n4,z,B'), TABLE)
    assert rows["text"].tolist() == ['x, "so"', "two\nlines", "y", "z"]
    assert rows["label"].tolist() == ["A", "B", "A", "B"]
    assert rows.index.tolist() == [2, 4, 5, 6]


def test_any_table(write, tmp_path):
    frame = pd.DataFrame({"text": ["first", "second", "third", "fourth"], "label": [1, 2, 1, 2]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    odd = write(frame.to_csv(index=False, sep="#"))
    for source in (frame, tmp_path / "a.parquet", tmp_path / "a.jsonl", odd):
        names, corpus = read_corpus({"train": source}, {**TABLE, "delimiter": "#"})
        assert (names, corpus["label"].tolist()) == (["1", "2"], [0, 1, 0, 1])
        assert corpus["text"].tolist() == frame["text"].tolist()


def test_missing_labels_do_not_turn_numbers_into_other_classes():
    frame = pd.DataFrame({"text": list("abcde"), "label": [1, 2, None, 1, 2]})
    assert read_rows(frame, DROP)["label"].tolist() == ["1", "2", "1", "2"]


def test_bad_rows(write, said):
    path = write(GOOD + ",b\nsixth,null\nx,NA\n")  # NA trained as a class
    summary = f"{path}: 3 of 7 rows can't be used: row 6 (no text), row 7 (no label), row 8 (no label); "
    message = f"{summary}correct or delete them, or use --data.bad_rows drop"
    assert refusal(read_corpus, {"train": path}, TABLE) == message
    rows = read_rows(path, DROP)
    assert rows.index.tolist() == [2, 3, 4, 5]
    assert said.messages == [f"{summary}they are left out (data.bad_rows)"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("texts,label\na,b\n", "there is no column 'text', only 'texts', 'label'; did you mean 'texts'?"),
        (
            "text,y\na,b\n",
            "there is no column 'label', only 'text', 'y'; set data.text_columns and data.label_column, or "
            "name all with data.columns if row 1 is a text",
        ),
    ],
)
def test_columns_that_do_not_fit(write, content, message):
    path = write(content)
    assert refusal(read_rows, path, TABLE) == f"{path}: {message}"


def test_a_test_file_can_have_a_class_of_its_own(write):
    files = {"train": write(GOOD), "test": write("text,label\nx,b\ny,new\n", "test.csv")}
    names, corpus = read_corpus(files, TABLE)
    assert names == ["a", "b", "new"]
    assert corpus[["text", "label", "split"]].to_numpy().tolist()[-2:] == [["x", 1, "test"], ["y", 2, "test"]]


def test_columns_without_names(write):
    path = write("1,one,x\n2,,y\n1,three,z\n2,four,z\n")
    table = {**TABLE, "text_columns": ["title", "more"], "columns": ["label", "title", "more"]}
    assert read_corpus({"train": path}, table)[1]["text"].tolist() == ["one x", "y", "three z", "four z"]


@pytest.mark.parametrize(
    ("labels", "expected"), [(["10", "9", "-1"], ["-1", "9", "10"]), (["b", "10", "9"], ["10", "9", "b"])]
)
def test_order_of_the_classes(write, labels, expected):
    path = write("text,label\n" + "".join(f"some text,{label}\n" for label in labels * 2))
    names, corpus = read_corpus({"train": path}, TABLE)
    assert [names[label] for label in corpus["label"]] == labels * 2
    assert names == expected


def test_input_to_predict(write):
    def read(path, **options):
        return read_input(str(path), {**TABLE, **options})

    assert read(write("one\r\n\r\nNA \u2028 parts\n", "in.txt")) == {1: "one", 3: "NA \u2028 parts"}
    assert read(write("id;text\n1;one\n2;two\n")) == {2: "one", 3: "two"}  # without labels
    named = {"columns": ["label", "text", "more"], "text_columns": ["text", "more"]}
    assert read(write("a,one,x\n"), **named) == {1: "one x"}
    path = write("text,x\none,1\n,2\nthree,3\n")
    assert read(path, bad_rows="drop") == {2: "one", 4: "three"}
    assert refusal(read, path).startswith(f"{path}: 1 of 3 rows can't be used: row 3 (no text); correct or delete")
    assert refusal(read, f"{path}.txt").startswith("--input: there is no file ")
