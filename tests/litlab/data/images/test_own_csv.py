"""The user's own CSV file: what is accepted, and the one line that names what is not."""

from functools import partial

import pytest
import torch

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import pixels, write_image

refused = partial(refusal, prepared)


@pytest.fixture
def table(tmp_path):
    """Writes a CSV file; 20 images 0.png to 19.png lie beside it."""
    for i in range(20):
        write_image(tmp_path / "csv" / "images" / f"{i}.png", seed=i)

    def write(text: str | bytes):
        path = tmp_path / "csv" / "pets.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


REMEDY = "; correct or delete the row, or use --data.bad_rows drop"
ROWS = [f"images/{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(20)]


def from_csv(make_data, path, **options):
    return make_data(dataset="csv", path=str(path), **options)


def test_csv_without_splits_is_split_by_class(make_data, table):
    data = prepared(from_csv(make_data, table("file,label\n" + "\n".join(ROWS))), None)
    assert data.class_names == ["cat", "dog"]
    assert data.sizes == {"train": 16, "val": 2, "test": 2}
    assert data.has_test
    rows = {split: data.samples(split).labels.bincount().tolist() for split in data.sizes}
    assert rows == {"train": [8, 8], "val": [1, 1], "test": [1, 1]}


def test_csv_of_excel_with_other_columns_and_splits(make_data, table):
    split = ["train"] * 10 + ["val"] * 4 + ["test"] * 6
    rows = [f'"{row.split(",")[0]}",note,{row.split(",")[1]},{s}' for row, s in zip(ROWS, split, strict=True)]
    text = "\ufeffimage,comment,class,part\r\n" + "\r\n".join(rows)  # with a byte order mark
    options = {"file_column": "image", "label_column": "class", "split_column": "part"}
    data = prepared(from_csv(make_data, table(text), **options), None)
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.samples("test").labels.tolist() == [1, 0] * 3
    expected = pixels(table(text).parent / "images" / "14.png")
    assert data.samples("test")[torch.tensor([0])]["image"][0].equal(expected)


def test_csv_splits_without_test(make_data, table):
    path = table("file,label,split\n" + "\n".join(row + ",train" for row in ROWS))
    data = prepared(from_csv(make_data, path, split_column="split"))
    assert data.sizes == {"train": 18, "val": 2}
    assert refused(data, "test") == f"data.path: {path} has no test images; add some"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "name,label\nimages/0.png,cat\n",
            {},
            "{path}: there is no column 'file', only 'name', 'label'; set --data.file_column NAME",
        ),
        (
            "file;label\nimages/0.png;cat\n",
            {},
            "{path}: there is no column 'file', only 'file;label'; separate the values by commas, "
            "and decimals by points",
        ),
        (
            "file,label\n" + ROWS[0],
            {"split_column": "part"},
            "{path}: there is no column 'part', only 'file', 'label'; set --data.split_column NAME",
        ),
        ("", {}, "{path}: there is no column 'file', only an empty file; set --data.file_column NAME"),
        ("file,label\n", {}, "{path}: no rows below the header; add one per image"),
        (
            f"file,label\n{ROWS[0]}\n{ROWS[1]}\nimages/2.png,\n",
            {},
            "{path}, line 4: label is empty" + REMEDY,
        ),
        (
            f"file,label\n{ROWS[0]}\nimages/2.png\n",
            {},
            "{path}, line 3: 1 field instead of 2: put texts with line breaks into double quotes" + REMEDY,
        ),
        (
            f"file,label\n{ROWS[0]}\nimages/gone.png,cat\n{ROWS[1]}\nimages/too.png,cat\n",
            {},
            "{path}: 2 of 4 rows can't be used: line 3 ('images/gone.png': no such file), line 5 "
            "('images/too.png': no such file); correct or delete them, or use --data.bad_rows drop",
        ),
        (
            f"file,label,split\n{ROWS[0]},train\n{ROWS[1]},Train\n",
            {"split_column": "split"},
            "{path}, line 3: split is 'Train', not train, val or test" + REMEDY,
        ),
        (
            f"file,label,split\n{ROWS[0]},train\n{ROWS[1]},train\nimages/2.png,cow,test\n",
            {"split_column": "split"},
            "{path}, line 4: class 'cow' is in test, but not in train" + REMEDY,
        ),
        (
            f"file,label,split\n{ROWS[0]},val\n",
            {"split_column": "split"},
            "{path}: no row has split train; mark the training images",
        ),
        (f"file,label\n{ROWS[0]}\n", {}, "{path}: column label has only the class 'dog'; at least 2 are needed"),
        (
            "file,label\nimages/0.png,Köter\n".encode("latin-1"),
            {},
            "{path}: 1 of 1 rows can't be used: line 2 (not UTF-8, byte 0xf6: save it as UTF-8 (in spreadsheets: "
            "CSV UTF-8)); correct or delete the row",
        ),
        (
            'file,label\nimages/0.png,"cat\n',
            {},
            "{path}, line 2: broken quoting (a double quote is opened and never closed); quotes inside a quoted text "
            "are written twice",
        ),
    ],
)
def test_what_a_csv_can_have_wrong(make_data, table, text, options, message):
    path = table(text)
    assert refused(from_csv(make_data, path, **options)) == message.format(path=path, root=path.parent)


def test_csv_that_is_not_there(make_data, tmp_path):
    path = tmp_path / "gone.csv"
    assert refused(from_csv(make_data, path)) == f"data.path: there is no file {path}"
