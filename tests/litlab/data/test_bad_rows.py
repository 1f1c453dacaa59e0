"""Rows that can't be used: all are found in one pass, then named, or left out and counted."""

import pytest
from litlab.data.labels import label_notes
from PIL import Image

from litlab.data import ImageData, TextData
from litlab.data.text.predictions import read_input
from tests.litlab.data.conftest import prepared, refusal

# ---- texts


def reviews(folder, name="reviews.csv", bad=(), rows=40, start=0):
    """A file of two classes; `bad` are lines by their row numbers."""
    lines = ["text,label", *(f"text {n} {'good' if n % 2 else 'bad'},{n % 2}" for n in range(start, start + rows))]
    for row, line in dict(bad).items():
        lines.insert(row - 1, line)
    path = folder / name
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return path


BAD = {3: ",1", 7: " ,0", 11: "too,many,fields", 12: "no label,", 20: '"quo"te",1', 25: "caf\udce9,1", 30: "alone,9"}


def texts(folder, path, **options):
    return TextData("csv", str(path), cache_dir=str(folder / "cache"), **options)


def test_all_bad_rows_of_texts_are_in_one_error(tmp_path):
    path = reviews(tmp_path, bad=BAD)
    assert refusal(prepared, texts(tmp_path, path)) == (
        f"{path}: 7 of 47 rows can't be used: line 3 (the text is empty), line 7 (the text is empty), line 11 (3 "
        f"fields instead of 2: put texts with commas into double quotes), and 4 more; correct or delete them, or use "
        f"--data.bad_rows drop"
    )


def test_bad_rows_of_both_files_are_in_one_error(tmp_path):
    path, test = reviews(tmp_path, bad={3: ",1"}), reviews(tmp_path, "test.csv", bad={5: "new,8"}, rows=9)
    assert refusal(prepared, texts(tmp_path, path, test_path=str(test))) == (
        f"{path}, line 3: the text is empty; {test}, line 5: class '8' is not in {path}; correct or delete them, or "
        f"use --data.bad_rows drop"
    )


def test_bad_rows_of_texts_are_dropped_counted_and_told_every_time(tmp_path, said):
    path = reviews(tmp_path, bad=BAD)
    test = reviews(tmp_path, "test.csv", bad={2: ",0", 3: "x,y,z"}, rows=10, start=100)
    for _ in range(2):  # the second time from the cache
        said.clear()
        data = prepared(texts(tmp_path, path, test_path=str(test), bad_rows="drop"), "fit")
        assert data.sizes == {"train": 36, "val": 4, "test": 10}
        assert data.class_names == ["0", "1"]
        assert data.description.endswith(", 9 rows dropped")
        assert len(said) == 1
        assert said[0].startswith(f"{path}: 7 of 47 rows dropped (data.bad_rows): line 3 (the text is empty), line 7")
        data.setup("test")
        assert said[1].startswith(
            f"{test}: 2 of 12 rows dropped (data.bad_rows): line 2 (the text is empty), line 3 (3 f"
        )
    refusal(prepared, texts(tmp_path, path, test_path=str(test)))  # what was stored without them is not taken


def test_the_test_that_is_cut_from_the_file_tells_too(tmp_path, said):
    data = texts(tmp_path, reviews(tmp_path, bad={3: ",1"}), bad_rows="drop")
    prepared(data, "test")
    assert [line.split(": ")[1] for line in said] == ["1 of 41 rows dropped (data.bad_rows)"]


def test_rows_to_predict_keep_their_numbers(tmp_path, said):
    path = reviews(tmp_path, "new.csv", bad={3: ",1", 5: "a,b,c"}, rows=4)
    assert refusal(read_input, str(path), None, ["text"], "label").startswith(
        f"{path}: 2 of 6 rows can't be used: line 3 ("
    )
    assert read_input(str(path), None, ["text"], "label", "drop").numbers == [2, 4, 6, 7]
    path.write_text('text\n"on\nthree\nlines"\n" "\n\nlast\n')  # a row of its own in a spreadsheet
    assert f"{path}, line 5: the text is empty; " in refusal(read_input, str(path), None, ["text"], "label")
    assert read_input(str(path), None, ["text"], "label", "drop").numbers == [2, 5]
    path = tmp_path / "new.txt"
    path.write_bytes(b"one\n\ntwo\nca\xe9\n")
    assert read_input(str(path), None, ["text"], "label", "drop").numbers == [1, 3]
    assert len(said) == 3
    path.write_bytes(b"\n\n")
    assert refusal(read_input, str(path), None, ["text"], "label", "drop") == (
        f"{path}: 2 of 2 rows can't be used: line 1 (the text is empty), line 2 (the text is empty); correct or "
        f"delete them"
    )


def test_a_quote_that_swallows_lines_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('text,label\nx,1\n"open,1\n' + "y,0\n" * 5 + 'closed" here,1\nz,0\nz,1\nq,2\n')
    assert "line 3 (broken quoting" in refusal(prepared, texts(tmp_path, path))
    path.write_text('text,label\nx,1\n"open,1\n' + "y,0\n" * 5 + 'closed",here,1\n' + "z,0\nz,1\n" * 3)
    message = refusal(prepared, texts(tmp_path, path))
    assert "line 3: 3 fields on 7 lines instead of 2: one of its double quotes is missing or too many; " in message


def test_testing_on_what_was_trained_on(tmp_path, said):
    path = reviews(tmp_path)
    (tmp_path / "link.csv").symlink_to(path)
    (tmp_path / "copy.csv").write_bytes(path.read_bytes())
    for name, what in (
        ("reviews.csv", "the same file as"),
        ("link.csv", "the same file as"),
        ("copy.csv", "a copy of"),
    ):
        message = refusal(prepared, texts(tmp_path, path, test_path=str(tmp_path / name)))
        assert message.startswith(f"data.test_path: {tmp_path / name} is {what} data.path ({path}), so the test")
    test = reviews(tmp_path, "test.csv", rows=10, start=37)
    prepared(texts(tmp_path, path, test_path=str(test), val_fraction=0.0))
    assert said == [
        "warning: 3 of 10 test texts are in the training texts too, word for word, which makes the test easier than "
        "new texts are"
    ]


@pytest.mark.parametrize(
    ("labels", "notes"),
    [
        ({"pos": 5, "neg": 4, "neutral": 1}, []),
        ({"1": 5, "2": 3, "10": 2}, []),
        ({"pos": 5, "POS": 2, "neg": 3}, ["'pos' (5) and 'POS' (2)"]),
        ({"1": 5, "1.0": 2, "0": 3, "00": 9}, ["'1' (5) and '1.0' (2); '00' (9) and '0' (3)"]),
        ({"very good": 3, "very  good": 2, "Very Good": 1}, ["'very good' (3), 'very  good' (2) and 'Very Good' (1)"]),
        ({"pos": 3, "pos ": 1200}, ["count as one class: 'pos ' (1,200) and 'pos' (3)"]),
        ({"caf\u00e9": 3, "cafe\u0301": 2}, ["'caf\u00e9' (3) and 'cafe\u0301' (2)"]),
        (
            {"nan": 3, "a": 2, "None": 1, "?": 4},
            ["missing values, but count as classes: 'nan' (3); 'None' (1); '?' (4)"],
        ),
    ],
)
def test_labels_that_are_hardly_meant_so(labels, notes):
    found = label_notes(labels)
    assert len(found) == len(notes)
    for note, part in zip(found, notes, strict=True):
        assert part in note


def test_labels_are_told_with_every_data_set(tmp_path, said):
    path = reviews(tmp_path, bad={2: "one,1.0", 3: "two,1.0"})
    prepared(texts(tmp_path, path))
    assert [line.startswith("data.label_column: warning: labels that differ only in how") for line in said] == [True]


# ---- images


@pytest.fixture
def pets(tmp_path):
    """pets.csv and 20 images."""
    for number in range(20):
        Image.new("RGB", (4, 4), (12 * number, 0, number)).save(tmp_path / f"{number}.png")
    (tmp_path / "pets.csv").write_text("file,label\n" + "".join(f"{n}.png,{'ab'[n % 2]}\n" for n in range(20)))
    return tmp_path / "pets.csv"


def test_bad_rows_and_images(pets, said):
    with pets.open("a") as stream:
        stream.write("gone.png,a\n3.png\n.,b\n")
    (pets.parent / "0.png").write_bytes(b"rubbish")
    (pets.parent / "7.png").write_bytes((pets.parent / "7.png").read_bytes()[:50])

    def data(**options):
        return ImageData("csv", str(pets), cache_dir=str(pets.parent / "cache"), **options)

    assert refusal(prepared, data()) == (
        f"{pets}: 3 of 23 rows can't be used: line 22 ('gone.png': no such file), line 23 (1 field instead of 2: put "
        f"texts with line breaks into double quotes), line 24 ('.': a pipe, a device or a folder, not an "
        f"image); correct or delete them, or use --data.bad_rows drop"
    )
    for _ in range(2):
        said.clear()
        images = prepared(data(bad_rows="drop"))
        assert sum(images.sizes.values()) == 18
        assert images.description.endswith("2 classes, 5 rows dropped")
        assert [line.split(": ")[1] for line in said] == [
            "3 of 23 rows dropped (data.bad_rows)",
            "2 of 20 images dropped (data.bad_rows)",
        ]
        labels = sum((images.samples(split).labels.bincount(minlength=2) for split in images.sizes), 0)
        assert labels.tolist() == [9, 9]
    images.load_state_dict(images.state_dict())
    images.predict_input = str(pets.parent / "[0-9].png")
    assert len(images.predict_dataloader().dataset) == 8
    assert [file.name for file in images._predicted] == [f"{n}.png" for n in (1, 2, 3, 4, 5, 6, 8, 9)]


def test_images_to_predict_are_all_looked_at_before_an_error(pets):
    data = prepared(ImageData("csv", str(pets), cache_dir=str(pets.parent / "cache"), batch_size=2))
    data.load_state_dict(data.state_dict())
    for number in (3, 9):
        (pets.parent / f"{number}.png").write_bytes(b"rubbish")
    data.predict_input = str(pets.parent / "*.png")
    message = refusal(list, data.predict_dataloader())
    assert message.startswith(f"{pets.parent}/*.png: 2 of 20 images can't be used: ")


def test_classes_of_images_that_are_hardly_meant_so(pets, said):
    pets.write_text("file,label\n" + "".join(f"{n}.png,{'a' if n % 2 else 'A'}\n" for n in range(20)))
    assert ImageData("csv", str(pets)).class_names == ["A", "a"]
    assert len(said) == 1
    assert "'A' (10) and 'a' (10)" in said[0]


def test_a_class_without_readable_images(pets):
    for number in range(0, 20, 2):
        (pets.parent / f"{number}.png").write_bytes(b"rubbish")
    data = ImageData("csv", str(pets), cache_dir=str(pets.parent / "cache"), bad_rows="drop")
    assert refusal(prepared, data) == "data.path: no training image of class 'a' can be read; replace some"
