"""Folders and tables of images: what is listed, and the one line that names what is not right."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from litlab.data import ImageData
from litlab.data.images.decode import find_kinds
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import (
    Digits,
    make,
    pixels,
    take,
    write_image,
    write_images,
)


def test_every_image_is_listed_once_and_files_of_other_kinds_are_counted(pets, said):
    shutil.move(pets / "train/cat", pets.parent)
    (pets / "train/cat").symlink_to("../../cat")
    (pets / "train/cat/._1.png").write_bytes(b"hidden")
    for name in ("cat/@eaDir/1.png", "@eaDir/1.png", "__MACOSX/cat/1.png"):  # thumbnails
        write_image(pets / "train" / name)
    assert len(make(pets).listing.names) == 36
    for name in ("dog/more/deep.PNG", "dog/x.jfif", "cat/x.JPE", "cat/x.avif"):
        write_image(pets / "train" / name)
    assert not said
    for name in ("cat/notes.txt", "dog/1.raw", "dog/2.raw"):
        (pets / "train" / name).touch()
    listing = make(pets).listing
    assert len({*listing.names}) == len(listing.names) == 40
    for name, label in zip(listing.names, listing.cells["label"], strict=True):
        assert f"/{label}/" in name
    assert "what is no image is left out: 3 files, 2 *.raw, 1 *.txt" in said[0]


@pytest.mark.parametrize("cache", ["decoded", "none"])
def test_all_that_is_wrong_is_told_at_once_or_left_out(pets, said, cache):
    cats = pets / "train/cat"
    (cats / "03.png").write_bytes((cats / "03.png").read_bytes()[:60])
    (cats / "04.png").write_bytes(b"rubbish")
    Image.fromarray(np.ones((8, 6), dtype=np.float32)).save(cats / "05.tif")
    write_image(cats / "07.png", size=(9, 6))
    (cats / "x.png").symlink_to("gone")
    message = refusal(prepared, make(pets, mode="RGB"))
    for part in ("5 of 38 images can't be used", "03.png (", "04.png (not an im", " and 2 more"):
        assert part in message
    data = prepared(make(pets, mode="RGB", cache=cache, bad_rows="drop"))
    assert sum(data.sizes.values()) == 33
    assert len(list(data.batches("train"))) == 6
    assert ["5 of 38 images can't be used" in line for line in said].count(True) == 1
    for file in pets.glob("train/*/*"):
        file.unlink()
        file.write_bytes(b"rubbish")
    lost = refusal(prepared, make(pets, cache=cache, bad_rows="drop"))
    assert "none of the training images can be used" in lost


def test_changes_of_equal_size_and_date_are_seen(pets):
    file, other = pets / "test/cat/00.png", pets / "test/cat/01.png"
    status = file.stat()
    assert (take(prepared(make(pets)), "test") == pixels(file).numpy()).all()
    size = status.st_size  # what is behind the end of an image is not looked at
    file.write_bytes(other.read_bytes()[:size].ljust(size, b"\0"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (take(prepared(make(pets)), "test") == pixels(other).numpy()).all()
    assert take(prepared(make(pets, image_size=(4, 4))), "test").shape == (3, 4, 4)


@pytest.mark.parametrize("kind", [ImageData, Digits])
def test_a_folder_of_classes_alone_is_split(pets, kind):
    """Also where a public set has the class's name: it is not taken for the folder of its files."""
    data = prepared(make(pets / "train", kind=kind, image_size=(8, 6)))
    assert data.class_names == ["cat", "dog"]
    assert set(data.sizes) == {"train", "val", "test"}
    empty = refusal(make(pets / "train/cat", dataset="folder").survey)
    assert f"there are no images in {pets}/train/cat/<class>/" in empty


def test_one_picture_in_two_classes_or_in_two_splits(pets, said):
    shutil.copy(pets / "train/cat/03.png", pets / "train/dog/copy.png")
    shutil.copy(pets / "train/cat/05.png", pets / "test/cat/copy.png")
    prepared(make(pets))
    assert "cat/03.png (cat)" in said[-2]
    assert "dog/copy.png (dog) are the same picture (such pictures: 1)" in said[-2]
    assert "training has 1 of the 10 images for evaluation, too" in said[-1]


@pytest.mark.parametrize("target", ["name", "split", "digest"])
def test_targets_may_be_called_like_what_is_known_of_pictures(pets, said, target):
    files = [*map(str, pets.glob("*/*/*.png"))]
    labels = [Path(file).parent.name for file in files]
    prepared(make(pd.DataFrame({"file": files, target: labels}), target=target))
    assert not said


def test_heic_names_its_package(pets, monkeypatch):
    """Whatever ends the name: phones also call them .jpg."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    find_kinds.cache_clear()
    for name in ("heic.HEIC", "heix.jpg", "mif1.jpg"):
        content = b"\0\0\0\x18ftyp" + name[:4].encode() + bytes(20)
        (pets / "train/cat" / name).write_bytes(content)
    message = refusal(prepared, make(pets))
    assert "3 of 39 images" in message
    assert message.count("(HEIC, which pip install pillow-heif reads)") == 3


# ---- tables


def test_other_columns_splits_and_corrected_labels():
    write_images(Path(), 20)
    columns = {
        "image": [f"{'ab'[number % 2]}/{number:03}.png" for number in range(20)],
        "class": ["dog", "cat"] * 10,
        "part": np.repeat(["train", "val", "test"], [10, 4, 6]),
    }
    path = Path("pets.csv")
    pd.DataFrame(columns).to_csv(path, index=False)
    options = {"file_column": "image", "target": "class", "split_column": "part"}
    data = prepared(make(path, **options))
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.labels("test").tolist() == [1, 0] * 3
    assert (take(data, "test") == pixels("a/014.png").numpy()).all()
    status = path.stat()
    path.write_text(path.read_text().replace("14.png,dog", "14.png,cat"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepared(make(path, **options)).labels("test").tolist() == [0, 0, 1, 0, 1, 0]


def test_what_is_not_there_is_named():
    path = Path("pets.csv")
    for text, line in (
        ("file,label\na,dog\nb,\nc,cat\n,cat\n", "2 of 4 rows can't be used: row 5 ('file' is mi"),
        ("file\na.png\n", "there is no column 'label', only 'file'; correct it, or set"),
    ):
        path.write_text(text)
        assert refusal(prepared, make(path)).startswith(f"{path}: {line}")
    line = "data.path: there is no folder gone; name one"
    assert refusal(make("gone", dataset="folder").survey).startswith(line)
