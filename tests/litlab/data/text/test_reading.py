"""What a file of texts says: rows that can't be used, the order of classes, texts to predict, words
and pieces.
"""

from pathlib import Path

import pytest

from litlab.data import TextData
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import all_texts, decode, strip


def make(content: str, test: str | None = None, **options) -> TextData:
    """Data of a file with this content, and perhaps of one to test on."""
    Path("my.csv").write_text(content)
    if test is not None:
        Path("test.csv").write_text(test)
        options["test_path"] = "test.csv"
    return TextData(path="my.csv", batch_size=8, **options)


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("columns", ["a"], "it has 1 name; give one for each of the 2 columns of "),
        ("text_columns", ["y", "label"], "they have data.target, which tells the answer"),
    ],
)
def test_columns_that_do_not_fit(name, columns, message):
    line = refusal(lambda: prepared(make("text,y\na,b\n", **{name: columns})))
    assert line.startswith(f"data.{name}: {message}")


@pytest.mark.parametrize("expected", [["-1", "9", "10"], ["10", "9", "b"]])
def test_order_of_the_classes_and_those_that_training_lacks(expected, said):
    options = {"columns": ["title", "text", "label"], "text_columns": ["title", "text"]}
    rows = "".join(f"a,b,{name}\n" for name in expected * 9)
    data = prepared(make(rows, f"x,y,{expected[0]}\nx,z,new\n", **options))
    assert (data.class_names, data.labels("test").tolist()) == (expected, [0])
    assert data.labels("train").bincount().tolist() == [8, 8, 8]
    assert all_texts(data)["test"] == ["x y"]
    assert "training lacks classes of the test samples, 'new' (1): 1 of 2 are left out" in said[0]
    message = refusal(prepared, make(rows, "x,y,new\n", **options))
    assert "training has no class of the test samples: 'new' (1); write" in message
    message = refusal(prepared, make("x,y,\n", f"x,y,{expected[0]}\n", bad_rows="drop", **options))
    assert "none of the training rows can be used" in message


def test_input_to_predict(make_data):
    def read(name, content, **options):
        Path(name).write_text(content, newline="")
        data = make_data(**options)
        rows = data.read_input(name)
        return dict(zip(data.row_names["row"], rows["text"], strict=True))

    assert read("in.txt", "one\r\n\r\nNA \u2028 parts\n") == {1: "one", 3: "NA \u2028 parts"}
    message = refusal(prepared, TextData(path="in.txt"))
    assert "in.txt is a .txt, which has a text a line and no target; name a table .csv" in message
    table = "text;x\none;1\n;2\nthree;3\n"  # without labels
    assert read("in.csv", table, bad_rows="drop") == {2: "one", 4: "three"}
    assert "1 of 3 rows can't be used: row 3 ('text' is missing)" in refusal(read, "in.csv", table)


def test_words():
    """As a model gets them: in lower case, those that training has twice or more."""
    texts = ["The cat's mat - the cat's hat!", "A cat<br />and a dog.<br/>Don't!", "the dog don't"]
    rows = "".join(f"{text},{number % 2}\n" for number, text in enumerate(texts))
    test = 'text,label\n"THE<br>dog<br />, Don\'t!",0\n<br />,1\nzebra zebra,0\n'
    data = prepared(make(f"text,label\n{rows}", test, val_fraction=0))
    known = ["[PAD]", "[UNK]", "the", "!", "a", "cat's", "dog", "don't"]
    assert decode(data, [*range(9)]) == [*known, None]
    ((inputs, _),) = data.batches("test")
    texts = ["the dog [UNK] don't !", "[UNK] [UNK]", "[UNK]"]
    assert [" ".join(decode(data, ids)) for ids in strip(inputs)] == texts


@pytest.mark.parametrize(("kind", "size"), [("word", 4), ("bpe", 300)])
def test_size_is_a_bound_and_no_text_can_spell_padding(kind, size):
    rows = [
        f"[PAD] {number} many words {'x' * number} x[UNK][PAD],{number % 2}\n" * 3
        for number in range(40)
    ]
    data = prepared(make("text,label\n" + "".join(rows), tokenizer=kind, vocab_size=size))
    last, behind = decode(data, [size - 1, size])
    assert (last is None, behind) == (False, None)
    ids = data.samples("train").tokens["ids"]
    assert 0 < ids.min() <= ids.max() < size
