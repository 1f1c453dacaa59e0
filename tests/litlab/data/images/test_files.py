"""Folders and tables of images: what is listed, and the one line that names what is not right."""

import os
import shutil

import pandas as pd
import pytest
import torch

from litlab.data.images import decode
from litlab.data.images.files import list_folder
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import pixels, write_image

# What a folder may hold: (change, number of images in train/)
HARMLESS = {
    "a linked class": (
        lambda root: [
            shutil.move(root / "train/cat", root.parent), (root / "train/cat").symlink_to("../../cat")
        ], 30
    ),
    "hidden files": (lambda root: (root / "train/cat/._1.png").write_bytes(b"x"), 30),
    "deep": (lambda root: write_image(root / "train/cat/more/deep.PNG", seed=1), 31),
    "other kinds": (lambda root: [write_image(root / f"train/cat/x.{end}") for end in ("jfif", "JPE", "avif")], 33),
    "thumbnails": (
        lambda root: [write_image(root / "train" / name) for name in ("cat/@eaDir/1.png", "@eaDir/1.png")], 30
    ),
    "of a Mac": (lambda root: write_image(root / "train/__MACOSX/cat/1.png"), 30),
}  # fmt: skip


@pytest.mark.parametrize("case", HARMLESS)
def test_every_image_is_listed_once(pets, case, said):
    change, count = HARMLESS[case]
    change(pets)
    listing = list_folder(pets, "error")
    files = listing["file"][listing["split"] == "train"]
    assert len(files) == len(set(files)) == count
    assert listing["label"].cat.categories.tolist() == ["cat", "dog"]
    assert listing["label"].cat.codes.tolist() == ["/dog/" in str(file) for file in listing["file"]]
    assert not said


def test_files_of_other_kinds_are_counted(pets, said):
    (pets / "train/cat/notes.txt").touch()
    for number in range(2):
        (pets / f"train/dog/{number}.raw").touch()
    assert len(list_folder(pets, "error")) == 36
    assert said == [f"warning: {pets}/train: 3 files are no images and are left out: 2 *.raw, 1 *.txt"]


def test_numbers_as_classes_are_in_numerical_order(tmp_path, said):
    for name in ("10", "9", "1"):
        write_image(tmp_path / "train" / name / "1.png")
    assert list_folder(tmp_path, "error")["label"].cat.categories.tolist() == ["1", "9", "10"]


REFUSED = {
    "nothing": (shutil.rmtree, "data.path: there is no folder {root}; name one that has train/<class>/"),
    "a class that train lacks": (
        lambda root: write_image(root / "test/cow/1.png"),
        "data.path: 1 of 37 images can't be used: image {root}/test/cow/1.png (it has no class, or none of the ",
    ),
    "a broken link": (
        lambda root: (root / "train/cat/x.png").symlink_to("gone"),
        "data.path: 1 of 37 images can't be used: image {root}/train/cat/x.png ([Errno 2] No such file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_refused(pets, make, case):
    change, says = REFUSED[case]
    change(pets)
    assert refusal(prepared, make(pets, dataset="folder")).startswith(says.format(root=pets))


# ---- the cache


def test_a_cache_is_good_as_long_as_nothing_changes(pets, make, monkeypatch):
    count, original = [0], decode.decode

    def counted(source, form):
        count[0] += 1
        return original(source, form)

    monkeypatch.setattr("litlab.data.images.store.decode", counted)

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
    data = prepared(make(frame if kind == "frame" else str(path)))
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
        ("name,label\nimages/0.png,cat\n", {}, "data.path: there is no column 'file', only 'name', 'label'"),
        (
            f"{HEADER}{ROWS[0]},train\n{ROWS[1]},Train\nimages/gone.png,cat,train\nimages/2.png,,test\n"
            f"{ROWS[3]},train\nimages/4.png,cow,test\n",
            {"split_column": "split"},
            "data.path: 3 of 6 rows can't be used: row 3 (its split is not train, val or test), row 5 (it has no "
            "class, or none of the training images), row 7 (it has no class, or none of the training images); correct "
            "or delete them, or use --data.bad_rows drop",
        ),
        (f"file,label\n{ROWS[0]}\n", {}, "data.path: it has 1 classes to train on"),
        (None, {}, "data.path: there is no file {path}"),
    ],
)  # fmt: skip
def test_what_a_table_can_have_wrong(make, table, text, settings, message):
    path = table(text or "")
    if text is None:
        path.unlink()
    assert refusal(prepared, make(path, **settings)).startswith(message.format(path=path))


def test_images_of_other_classes_are_dropped(make, pets, said):
    write_image(pets / "test/cow/1.png")
    assert prepared(make(pets, bad_rows="drop")).sizes == {"train": 27, "val": 3, "test": 6}
    assert said[0].startswith(f"data.path: 1 of 37 images can't be used: image {pets}/test/cow/1.png")


def test_bad_rows_are_dropped(make, table):
    path = table("file,label\nimages/gone.png,cat\n" + "\n".join(ROWS))
    assert prepared(make(path, bad_rows="drop")).sizes == {"train": 16, "val": 2, "test": 2}


def test_images_to_predict(make, pets, tmp_path):
    data = prepared(make(pets))
    for name in ("a.png", "deep/B.PNG", ".hidden.png"):
        write_image(tmp_path / "photos" / name)
    (tmp_path / "empty").mkdir()
    assert len(data.open_input(str(tmp_path / "photos"))) == 2
    assert len(data.open_input(str(tmp_path / "photos/a.png"))) == 1
    assert refusal(data.open_input, f"{tmp_path}/empty").endswith("there are no images in it; name a folder or a file")
