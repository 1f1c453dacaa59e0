"""Folders and tables of images: what is listed, and the one line that names what is not right."""

import os
import re
import shutil

import pandas as pd
import pytest
import torch

from litlab.data.images.files import find_images, list_folder
from litlab.errors import UserError
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import pixels, write_image


def link(target, place) -> None:
    place.symlink_to(target, target_is_directory=True)


# What a folder may hold: (change, number of images in train/)
HARMLESS = {
    "a loop": (lambda root: link(".", root / "train/cat/loop"), 30),
    "a linked folder": (
        lambda root: [write_image(root.parent / "x/a.png"), link(root.parent / "x", root / "train/cat/x")], 31
    ),
    "a linked class": (
        lambda root: [shutil.move(root / "train/cat", root.parent), link("../../cat", root / "train/cat")], 30
    ),
    "hidden files": (lambda root: (root / "train/cat/._1.png").write_bytes(b"x"), 30),
    "thumbnails": (
        lambda root: [
            write_image(root / "train" / name) for name in ("cat/@eaDir/1.png", "@eaDir/1.png", "dog/.thumbnails/1.png")
        ],
        30,
    ),
    "of a Mac": (lambda root: write_image(root / "train/__MACOSX/cat/1.png"), 30),
    "deep": (lambda root: write_image(root / "train/cat/more/deep.PNG", seed=1), 31),
    "JFIF and JPE": (lambda root: [write_image(root / f"train/cat/x.{end}") for end in ("jfif", "JPE", "avif")], 33),
}  # fmt: skip


@pytest.mark.parametrize("case", HARMLESS)
def test_every_image_is_listed_once(pets, case, said):
    change, count = HARMLESS[case]
    change(pets)
    listing = list_folder(pets)
    files = [file for file, split in zip(listing.files, listing.given, strict=True) if split == "train"]
    assert len(files) == len(set(files)) == count
    assert listing.class_names == ["cat", "dog"]
    assert listing.labels.tolist() == ["/dog/" in str(file) for file in listing.files]
    assert not said


def test_what_is_left_out_is_counted(pets, said):
    for name in ("cat/a.txt", "cat/b.txt", "dog/c.raw"):
        (pets / "train" / name).touch()
    write_image(pets / "train/loose.png")
    list_folder(pets)
    expected = f"warning: {pets}: 4 files are left out: 2 .txt, 1 .raw, 1 images outside of class folders"
    assert said == [expected]


def test_numbers_as_classes_are_in_numerical_order(tmp_path, said):
    for name in ("10", "9", "1"):
        write_image(tmp_path / "train" / name / "1.png")
    assert list_folder(tmp_path).class_names == ["1", "9", "10"]


BAD = "{root}: 1 of 37 images can't be used: 1 unreadable ({root}/train/cat/x.png: a broken link or a pipe); replace"
REFUSED = {
    "nothing": (shutil.rmtree, "data.path: there is no folder {root}/train; images belong in folders <path>/train/<"),
    "one class": (lambda root: shutil.rmtree(root / "train/cat"), "data.path: {root}/train has 1 class folders"),
    "a class that train lacks": (
        lambda root: write_image(root / "test/cow/1.png"), "{root}/test/cow: this class is not in {root}/train; add or"
    ),
    "an empty class": (lambda root: (root / "train/cow").mkdir(), "{root}/train/cow: no images in it (.jpg, "),
    "a broken link": (lambda root: link("gone", root / "train/cat/x.png"), BAD),
    "a pipe": (lambda root: os.mkfifo(root / "train/cat/x.png"), BAD),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_refused(pets, make, case):
    change, says = REFUSED[case]
    change(pets)
    assert refusal(prepared, make(pets, dataset="folder")).startswith(says.format(root=pets))


def test_copies_are_told(pets, make, said):
    """By their pixels, in training and evaluation, and in two classes."""
    shutil.copy(pets / "train/dog/03.png", pets / "test/dog/3.png")
    data = make(pets, val_fraction=0.0)
    prepared(data)
    data.setup("test")
    assert said == [
        f"warning: {pets}: 1 images for validation or test are copies of training images, such as "
        f"{pets}/test/dog/3.png: results look better than they are"
    ]
    said.clear()
    shutil.copy(pets / "train/cat/03.png", pets / "train/dog/x.png")
    (pets / "test/dog/3.png").unlink()
    prepared(make(pets, val_fraction=0.0))
    assert said == [
        f"warning: {pets}: 1 images are copies of images in another class, such as {pets}/train/dog/x.png of "
        f"{pets}/train/cat/03.png; delete the wrong ones"
    ]


# ---- the cache


def test_a_cache_is_good_as_long_as_nothing_changes(pets, make, monkeypatch):
    count = [0]
    from litlab.data.images import store

    def decode_all(files, form):
        count[0] += len(files)
        return original(files, form)

    original = store.decode_all
    monkeypatch.setattr(store, "decode_all", decode_all)

    def decodes(**settings) -> int:
        count[0] = 0
        prepared(make(pets, **settings))
        return count[0]

    assert decodes() == 36
    assert decodes() == 0
    assert decodes(val_fraction=0.3, seed=3, batch_size=2, fold="1/3") == 0
    assert decodes(image_size=(4, 4)) == 36
    (pets / "train/cat/01.png").unlink()
    assert decodes() == 35


def test_changes_of_equal_size_and_date_are_seen(pets, make):
    """Noise over an image, and labels that were corrected."""
    file = pets / "test/cat/00.png"
    status = file.stat()
    before = prepared(make(pets)).samples("test")[torch.tensor([0])]["image"][0]
    assert before.equal(pixels(file))
    content = bytearray(file.read_bytes())
    other = pets / "test/cat/01.png"
    content[:] = other.read_bytes()[: len(content)].ljust(
        len(content), b"\0"
    )  # what is behind the end is not looked at
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = prepared(make(pets)).samples("test")[torch.tensor([0])]["image"][0]
    assert after.equal(pixels(other))


@pytest.fixture
def table(tmp_path):
    """Writes a table; 20 images 0.png to 19.png lie beside it."""
    for i in range(20):
        write_image(tmp_path / "csv" / "images" / f"{i}.png", seed=i)

    def write(text, name="pets.csv"):
        path = tmp_path / "csv" / name
        path.write_text(text)
        return path

    return write


ROWS = [f"images/{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(20)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "semicolons", "absolute", "frame"])
def test_a_table_without_splits_is_split_by_class(make, table, kind, tmp_path):
    path = table("file,label\n" + "\n".join(ROWS))
    frame = pd.read_csv(path)
    if kind == "parquet":
        path = path.with_suffix(".parquet")
        frame.to_parquet(path)
    elif kind == "semicolons":
        frame.to_csv(path, sep=";", index=False)
    elif kind in ("absolute", "frame"):
        frame["file"] = [str(path.parent / name) for name in frame["file"]]
        path = tmp_path / "elsewhere.csv"
        frame.to_csv(path, index=False)
    data = prepared(make(frame if kind == "frame" else path))
    assert ("path" in data.hparams) == (kind != "frame")
    assert (data.dataset, data.class_names) == ("csv", ["cat", "dog"])
    assert data.sizes == {"train": 16, "val": 2, "test": 2}
    rows = {split: data.samples(split).labels.bincount().tolist() for split in data.sizes}
    assert rows == {"train": [8, 8], "val": [1, 1], "test": [1, 1]}


def test_other_columns_splits_and_corrected_labels(make, table):
    split = ["train"] * 10 + ["val"] * 4 + ["test"] * 6
    rows = [f'"{row.split(",")[0]}",note,{row.split(",")[1]},{s}' for row, s in zip(ROWS, split, strict=True)]
    path = table("\ufeffimage,comment,class,part\r\n" + "\r\n".join(rows))  # with a byte order mark
    options = {"file_column": "image", "label_column": "class", "split_column": "part"}
    data = prepared(make(path, **options))
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.samples("test").labels.tolist() == [1, 0] * 3
    assert data.samples("test")[torch.tensor([0])]["image"][0].equal(pixels(path.parent / "images/14.png"))
    status = path.stat()
    rows[14] = rows[14].replace("dog", "cat")
    path.write_text("\ufeffimage,comment,class,part\r\n" + "\r\n".join(rows))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepared(make(path, **options)).samples("test").labels.tolist() == [0, 0, 1, 0, 1, 0]


HEADER = "file,label,split\n"


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("name,label\nimages/0.png,cat\n", {}, "{path}: there is no column 'file', only 'name', 'label'"),
        (
            f"{HEADER}{ROWS[0]},train\n{ROWS[1]},Train\nimages/gone.png,cat,train\nimages/2.png,,test\n"
            f"{ROWS[3]},train\nimages/4.png,cow,test\n",
            {"split_column": "split"},
            "{path}: 4 of 6 rows can't be used: row 3 (split is 'Train', not train, val or test), row 4 "
            "(there is no file images/gone.png), row 5 (label is empty) and 1 more; correct or delete "
            "them, or use --data.bad_rows drop",
        ),
        (f"file,label\n{ROWS[0]}\n", {}, "{path}: the training rows have 1 classes, 2 or more are needed; add some"),
        (None, {}, "data.path: there is no file {path}"),
    ],
)  # fmt: skip
def test_what_a_table_can_have_wrong(make, table, text, settings, message):
    path = table(text or "")
    if text is None:
        path.unlink()
    assert refusal(prepared, make(path, **settings)).startswith(message.format(path=path))


def test_bad_rows_are_dropped(make, table):
    path = table("file,label\nimages/gone.png,cat\n" + "\n".join(ROWS))
    assert prepared(make(path, bad_rows="drop")).sizes == {"train": 16, "val": 2, "test": 2}


# ---- predicting


def test_images_to_predict(tmp_path, monkeypatch):
    root = tmp_path / "photos"
    for name in ("a.png", "deep/B.PNG", ".hidden.png", "@eaDir/c.png", "[1].png"):
        write_image(root / name)
    (root / "notes.txt").touch()

    def found(source) -> list[str]:
        return [os.path.relpath(file, root) for file in find_images(str(source))]

    assert found(root) == ["[1].png", "a.png", "deep/B.PNG"]
    assert found(root / "**/*.PNG") == ["deep/B.PNG"]
    assert found(root / "*") == ["[1].png", "a.png"]
    assert found(root / "[1].png") == ["[1].png"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert found("~/photos/a.png") == ["a.png"]
    for source in ("*.jpg", "gone"):
        with pytest.raises(UserError, match=re.escape(f"--input {root / source}: there are no images (.jpg, ")):
            find_images(str(root / source))
