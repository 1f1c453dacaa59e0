"""What a file of texts says: rows that can't be used, the order of classes, texts to predict, words
and pieces.
"""

import pytest
from tokenizers import Tokenizer

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import all_texts, decode, strip

ROWS = "".join(f"text {number},{number % 2 + 9}\n" for number in range(20))


@pytest.fixture
def make(make_data, tmp_path):
    """Makes data of a file with this content, and perhaps of one to test on."""

    def make_it(content: str, test: str | None = None, **options):
        (tmp_path / "my.csv").write_text(content)
        if test is not None:
            (tmp_path / "test.csv").write_text(test)
            options["test_path"] = str(tmp_path / "test.csv")
        return make_data(path=str(tmp_path / "my.csv"), **options)

    return make_it


def test_bad_rows(make, tmp_path, said):
    content = f"text,label\n,2\nsixth,null\nx,NA\n{ROWS}"  # NA trained as a class
    summary = (
        f"{tmp_path}/my.csv: 3 of 23 rows can't be used: row 2 ('text' is missing), row 3 "
        "('label' is missing), row 4 ('label' is missing); "
    )
    message = f"{summary}correct or delete them, or use --data.bad_rows drop"
    assert refusal(prepared, make(content)) == message
    data = prepared(make(content, bad_rows="drop"))
    # Not 9.0
    assert (data.sizes, data.class_names) == ({"train": 16, "val": 2, "test": 2}, ["9", "10"])
    assert said == [f"{summary}they are left out (data.bad_rows)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"columns": ["a"]},
            "data.columns: it has 1 name; give one for each of the 2 columns of {file}",
        ),
        (
            {"text_columns": ["y", "label"]},
            "data.text_columns: they have data.target, which tells the answer",
        ),
    ],
)
def test_columns_that_do_not_fit(make, tmp_path, options, message):
    line = refusal(lambda: prepared(make("text,y\na,b\n", **options)))
    assert line.startswith(message.format(file=tmp_path / "my.csv"))


@pytest.mark.parametrize("expected", [["-1", "9", "10"], ["10", "9", "b"]])
def test_order_of_the_classes_and_those_that_training_lacks(make, expected, said):
    options = {"columns": ["title", "text", "label"], "text_columns": ["title", "text"]}
    rows = "".join(f"a,b,{name}\n" for name in expected * 9)
    data = prepared(make(rows, f"x,y,{expected[0]}\nx,z,new\n", **options))
    assert (data.class_names, data.labels("test").tolist()) == (expected, [0])
    assert data.labels("train").bincount().tolist() == [8, 8, 8]
    assert all_texts(data)["test"] == ["x y"]
    assert "training lacks classes of the test samples, 'new' (1): 1 of 2 are left out" in said[0]
    message = refusal(prepared, make(rows, "x,y,new\n", **options))
    assert "training has no class of the test samples: 'new' (1); write" in message


def test_input_to_predict(tmp_path, make_data):
    def read(name, content, **options):
        (tmp_path / name).write_text(content, newline="")
        data = make_data(**options)
        rows = data.read_input(str(tmp_path / name))
        return dict(zip(data.row_names["row"], rows["text"], strict=True))

    assert read("in.txt", "one\r\n\r\nNA \u2028 parts\n") == {1: "one", 3: "NA \u2028 parts"}
    message = refusal(prepared, make_data(path=str(tmp_path / "in.txt")))
    assert "in.txt is a .txt, which has a text a line and no target; name a table .csv" in message
    table = "text;x\none;1\n;2\nthree;3\n"  # without labels
    assert read("in.csv", table, bad_rows="drop") == {2: "one", 4: "three"}
    message = refusal(read, "in.csv", table)
    assert message.startswith(
        f"{tmp_path}/in.csv: 1 of 3 rows can't be used: row 3 ('text' is missing); correct"
    )


def test_words(make):
    """As a model gets them: in lower case, those that training has twice or more."""
    texts = ["The cat's mat - the cat's hat!", "A cat<br />and a dog.<br/>Don't!", "the dog don't"]
    rows = "".join(f"{text},{number % 2}\n" for number, text in enumerate(texts))
    test = 'text,label\n"THE<br>dog<br />, Don\'t!",0\n<br />,1\nzebra zebra,0\n'
    data = prepared(make(f"text,label\n{rows}", test, val_fraction=0))
    known = Tokenizer.from_str(data.metadata.tokenizer).get_vocab()
    assert sorted(known, key=known.get) == [
        "[PAD]",
        "[UNK]",
        "the",
        "!",
        "a",
        "cat's",
        "dog",
        "don't",
    ]
    ((inputs, _),) = data.batches("test")
    assert [decode(data, ids) for ids in strip(inputs)] == [
        ["the", "dog", "[UNK]", "don't", "!"],
        ["[UNK]"] * 2,
        ["[UNK]"],
    ]


@pytest.mark.parametrize(("kind", "size"), [("word", 4), ("bpe", 300)])
def test_size_is_a_bound_and_no_text_can_spell_padding(make, kind, size):
    rows = [
        f"[PAD] {number} many words {'x' * number} x[UNK][PAD],{number % 2}\n" * 3
        for number in range(40)
    ]
    data = prepared(make("text,label\n" + "".join(rows), tokenizer=kind, vocab_size=size))
    known = Tokenizer.from_str(data.metadata.tokenizer).get_vocab()
    assert sorted(known.values()) == list(range(size))
    ids = data.samples("train").part["ids"]
    assert 0 < ids.min() <= ids.max() < size
