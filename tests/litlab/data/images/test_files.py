"""Folders and tables of images: what is listed, and the one line that names what is not right."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import pixels, take, write_image


def test_every_image_is_listed_once_and_files_of_other_kinds_are_counted(pets, make, said):
    shutil.move(pets / "train/cat", pets.parent)
    (pets / "train/cat").symlink_to("../../cat")
    (pets / "train/cat/._1.png").write_bytes(b"hidden")
    for name in ("cat/@eaDir/1.png", "@eaDir/1.png", "__MACOSX/cat/1.png"):  # thumbnails
        write_image(pets / "train" / name)
    assert len(make(pets).listing) == 36
    for name in ("dog/more/deep.PNG", "dog/x.jfif", "cat/x.JPE", "cat/x.avif"):
        write_image(pets / "train" / name)
    assert not said
    for name in ("cat/notes.txt", "dog/1.raw", "dog/2.raw"):
        (pets / "train" / name).touch()
    listing = make(pets).listing
    assert len(listing) == len(set(listing["file"])) == 40
    assert listing["label"].tolist() == [
        "dog" if "/dog/" in str(file) else "cat" for file in listing["file"]
    ]
    assert said == [
        f"warning: {pets}/train: 3 files are no images and are left out: 2 *.raw, 1 *.txt"
    ]


def test_all_that_is_wrong_is_told_at_once(make, pets, said):
    cats = pets / "train/cat"
    (cats / "03.png").write_bytes((cats / "03.png").read_bytes()[:60])
    (cats / "04.png").write_bytes(b"rubbish")
    Image.fromarray(np.ones((8, 6), dtype=np.float32)).save(cats / "05.tif")
    write_image(cats / "07.png", size=(9, 6))
    (cats / "x.png").symlink_to("gone")
    message = refusal(prepared, make(pets, mode="RGB"))
    for part in (
        "data.path: 5 of 38 images can't be used: image",
        "03.png (",
        "04.png (not an image)",
        " and 2 more",
    ):
        assert part in message
    data = prepared(make(pets, bad_rows="drop", image_size=[8, 6], mode="RGB"))
    assert data.sizes == {"train": 25, "val": 3, "test": 6}
    assert said[-1].startswith("data.path: 4 of 38 images can't be used")
    assert data.samples("train").labels.bincount().tolist() == [16, 9]


def test_changes_of_equal_size_and_date_are_seen(pets, make):
    """Noise over an image."""
    file, other = pets / "test/cat/00.png", pets / "test/cat/01.png"
    status = file.stat()
    assert (take(prepared(make(pets)), "test") == pixels(file).numpy()).all()
    size = status.st_size  # what is behind the end of an image is not looked at
    file.write_bytes(other.read_bytes()[:size].ljust(size, b"\0"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (take(prepared(make(pets)), "test") == pixels(other).numpy()).all()
    assert take(prepared(make(pets, image_size=(4, 4))), "test").shape == (3, 4, 4)


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


def test_other_columns_splits_and_corrected_labels(make, table):
    split = ["train"] * 10 + ["val"] * 4 + ["test"] * 6
    rows = (f"{row.replace(',', ';')};{part}" for row, part in zip(ROWS, split, strict=True))
    text = "\ufeffimage;class;part\r\n" + "\r\n".join(rows)  # with a byte order mark
    path = table(text)
    options = {"file_column": "image", "label_column": "class", "split_column": "part"}
    data = prepared(make(path, **options))
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.samples("test").labels.tolist() == [1, 0] * 3
    assert (take(data, "test") == pixels(path.parent / "images/14.png").numpy()).all()
    status = path.stat()
    table(text.replace("14.png;dog", "14.png;cat"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepared(make(path, **options)).samples("test").labels.tolist() == [0, 0, 1, 0, 1, 0]
    options.pop("split_column")
    assert prepared(make(path, **options)).sizes == {"train": 16, "val": 2, "test": 2}


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            f"file,label,split\n{ROWS[0]},train\n{ROWS[1]},Train\nimages/2.png,,test\n"
            f"{ROWS[3]},train\nimages/4.png,cow,test\n",
            {"split_column": "split"},
            "data.path: 3 of 5 rows can't be used: row 3 (its split is not train, val or test), "
            "row 4 (it has no class, or none of the training images), row 6 (it has no class, or "
            "none of the training images); correct ",
        ),
        (f"file,label\n{ROWS[0]}\n", {}, "data.path: it has 1 classes to train on"),
        (
            "file\na.png\n",
            {},
            "data.path: there is no column 'label', only 'file'; set data.file_column, data.label_",
        ),
        (
            "",
            {"path": "gone", "dataset": "folder"},
            "data.path: there is no folder gone; name one that has train/",
        ),
        (
            "",
            {"transform": [torch.nn.Identity()]},
            "data.transform: it is for images that are decoded for each batch",
        ),
    ],
)
def test_what_is_refused(make, table, text, settings, message):
    assert refusal(lambda: prepared(make(**{"path": table(text), **settings}))).startswith(message)
