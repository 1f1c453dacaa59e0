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


def test_every_image_is_listed_once_and_files_of_other_kinds_are_counted(pets, said):
    shutil.move(pets / "train/cat", pets.parent)
    (pets / "train/cat").symlink_to("../../cat")
    (pets / "train/cat/._1.png").write_bytes(b"hidden")
    for name in ("cat/@eaDir/1.png", "@eaDir/1.png", "__MACOSX/cat/1.png"):  # thumbnails
        write_image(pets / "train" / name)
    assert len(list_folder(pets, "error")) == 36
    for name in ("dog/more/deep.PNG", "dog/x.jfif", "cat/x.JPE", "cat/x.avif"):
        write_image(pets / "train" / name)
    listing = list_folder(pets, "error")
    assert len(listing) == len(set(listing["file"])) == 40
    assert listing["label"].cat.categories.tolist() == ["cat", "dog"]
    assert listing["label"].cat.codes.tolist() == ["/dog/" in str(file) for file in listing["file"]]
    assert not said
    for name in ("cat/notes.txt", "dog/1.raw", "dog/2.raw"):
        (pets / "train" / name).touch()
    assert len(list_folder(pets, "error")) == 40
    assert said == [f"warning: {pets}/train: 3 files are no images and are left out: 2 *.raw, 1 *.txt"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (shutil.rmtree, "data.path: there is no folder {root}; name one that has train/<class>/"),
        (
            lambda root: write_image(root / "test/cow/1.png"),
            "data.path: 1 of 37 images can't be used: image {root}/test/cow/1.png (it has no class, or none of the ",
        ),
        (
            lambda root: (root / "train/cat/x.png").symlink_to("gone"),
            "data.path: 1 of 37 images can't be used: image {root}/train/cat/x.png ([Errno 2] No such file",
        ),
    ],
)
def test_folders_that_are_refused(pets, make, said, change, line):
    change(pets)
    assert refusal(prepared, make(pets, dataset="folder")).startswith(line.format(root=pets))
    if pets.is_dir():
        assert prepared(make(pets, bad_rows="drop")).sizes == {"train": 27, "val": 3, "test": 6}
        assert said[-1].startswith("data.path: 1 of 37 images can't be used")


# ---- the cache


def test_a_cache_is_good_as_long_as_nothing_changes(pets, make, monkeypatch):
    calls, original = [], decode.decode

    def count(source, form):
        calls.append(source)
        return original(source, form)

    monkeypatch.setattr("litlab.data.images.store.decode", count)

    def count_decoded(**settings) -> int:
        calls.clear()
        prepared(make(pets, normalize="imagenet", **settings))
        return len(calls)

    assert count_decoded() == 36
    assert count_decoded() == 0
    assert count_decoded(val_fraction=0.3, seed=3, batch_size=2, fold="1/3") == 0
    (pets / "train/cat/01.png").unlink()
    assert count_decoded() == 35


def test_changes_of_equal_size_and_date_are_seen(pets, make):
    """Noise over an image."""
    file, other = pets / "test/cat/00.png", pets / "test/cat/01.png"
    status = file.stat()
    assert prepared(make(pets)).samples("test")[torch.tensor([0])]["image"][0].equal(pixels(file))
    size = status.st_size  # what is behind the end of an image is not looked at
    file.write_bytes(other.read_bytes()[:size].ljust(size, b"\0"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepared(make(pets)).samples("test")[torch.tensor([0])]["image"][0].equal(pixels(other))


# ---- tables

ROWS = [f"images/{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(20)]


@pytest.fixture
def table(tmp_path):
    """Writes a table; 20 images 0.png to 19.png lie beside it."""
    for i in range(20):
        write_image(tmp_path / "csv" / "images" / f"{i}.png", seed=i)

    def write(text):
        path = tmp_path / "csv/pets.csv"
        path.write_text(text)
        return path

    return write


def test_a_frame_is_split_by_class(make, table):
    path = table("file,label\nimages/gone.png,cat\n" + "\n".join(ROWS))
    frame = pd.read_csv(path)
    frame["file"] = [str(path.parent / name) for name in frame["file"]]
    data = prepared(make(frame, bad_rows="drop"))
    assert "path" not in data.hparams
    rows = {split: data.samples(split).labels.bincount().tolist() for split in data.sizes}
    assert rows == {"train": [8, 8], "val": [1, 1], "test": [1, 1]}


def test_other_columns_splits_and_corrected_labels(make, table):
    split = ["train"] * 10 + ["val"] * 4 + ["test"] * 6
    text = "\ufeffimage;class;part\r\n" + "\r\n".join(  # with a byte order mark
        f"{row.replace(',', ';')};{part}" for row, part in zip(ROWS, split, strict=True)
    )
    path = table(text)
    options = {"file_column": "image", "label_column": "class", "split_column": "part"}
    data = prepared(make(path, **options))
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.samples("test").labels.tolist() == [1, 0] * 3
    assert data.samples("test")[torch.tensor([0])]["image"][0].equal(pixels(path.parent / "images/14.png"))
    status = path.stat()
    table(text.replace("14.png;dog", "14.png;cat"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepared(make(path, **options)).samples("test").labels.tolist() == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            f"file,label,split\n{ROWS[0]},train\n{ROWS[1]},Train\nimages/2.png,,test\n"
            f"{ROWS[3]},train\nimages/4.png,cow,test\n",
            {"split_column": "split"},
            "data.path: 3 of 5 rows can't be used: row 3 (its split is not train, val or test), row 4 (it has no "
            "class, or none of the training images), row 6 (it has no class, or none of the training images); correct ",
        ),
        (f"file,label\n{ROWS[0]}\n", {}, "data.path: it has 1 classes to train on"),
    ],
)
def test_what_a_table_can_have_wrong(make, table, text, settings, message):
    assert refusal(prepared, make(table(text), **settings)).startswith(message)


def test_images_to_predict(make, pets, tmp_path):
    data = prepared(make(pets))
    for name in ("a.png", "deep/B.PNG", ".hidden.png"):
        write_image(tmp_path / "photos" / name)
    (tmp_path / "empty").mkdir()
    assert len(data.open_input(str(tmp_path / "photos"))) == 2
    assert len(data.open_input(str(tmp_path / "photos/a.png"))) == 1
    assert refusal(data.open_input, f"{tmp_path}/empty").endswith("there are no images in it; name a folder or a file")
