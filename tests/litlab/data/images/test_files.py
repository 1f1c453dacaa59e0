"""Folders and tables of images: what is listed, and the one line that names what is not right."""

import os
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from litlab.data import ImageData, PublicImages
from litlab.data.images.decode import find_kinds
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import pixels, take, write_image, write_images


def test_every_image_is_listed_once_and_files_of_other_kinds_are_counted(pets, make, said):
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


def test_all_that_is_wrong_is_told_at_once(make, pets):
    cats = pets / "train/cat"
    (cats / "03.png").write_bytes((cats / "03.png").read_bytes()[:60])
    (cats / "04.png").write_bytes(b"rubbish")
    Image.fromarray(np.ones((8, 6), dtype=np.float32)).save(cats / "05.tif")
    write_image(cats / "07.png", size=(9, 6))
    (cats / "x.png").symlink_to("gone")
    message = refusal(prepared, make(pets, mode="RGB"))
    for part in ("5 of 38 images can't be used", "03.png (", "04.png (not an im", " and 2 more"):
        assert part in message


def test_changes_of_equal_size_and_date_are_seen(pets, make):
    file, other = pets / "test/cat/00.png", pets / "test/cat/01.png"
    status = file.stat()
    assert (take(prepared(make(pets)), "test") == pixels(file).numpy()).all()
    size = status.st_size  # what is behind the end of an image is not looked at
    file.write_bytes(other.read_bytes()[:size].ljust(size, b"\0"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (take(prepared(make(pets)), "test") == pixels(other).numpy()).all()
    assert take(prepared(make(pets, image_size=(4, 4))), "test").shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("count", "find_size", "line"),
    [
        (30, lambda number: (8 + number % 2, 6), "the images are of 2 sizes, as "),
        # Not all are looked at
        (250, lambda number: (9, 9) if number in (3, 41) else (8, 6), "2 of 250 images are not of"),
    ],
)
def test_photos_of_other_sizes(make, tmp_path, count, find_size, line):
    write_images(tmp_path / "train", count, size=find_size)
    assert refusal(prepared, make(tmp_path)).startswith(f"data.image_size: {line}")
    dropping = make(tmp_path, bad_rows="drop")
    if count > 100:
        assert sum(prepared(dropping).sizes.values()) == count - 2
    else:
        assert line in refusal(prepared, dropping)


@pytest.mark.parametrize("cache", ["decoded", "none"])
def test_bad_images_are_dropped_however_they_are_read(make, pets, said, cache):
    for number in (3, 4):
        (pets / f"train/cat/{number:02}.png").write_bytes(b"rubbish")
    data = prepared(make(pets, cache=cache, bad_rows="drop"))
    assert sum(data.sizes.values()) == 34
    assert len(list(data.batches("train"))) == 6
    assert ["2 of 36 images can't be used" in line for line in said].count(True) == 1
    for file in pets.glob("train/*/*"):
        file.write_bytes(b"rubbish")
    lost = refusal(prepared, make(pets, cache=cache, bad_rows="drop"))
    assert "none of the training images can be used" in lost


class PublicPets(ImageData):
    public = PublicImages("pets", "Pets", ("pets.zip",), ("a", "b"), (3, 8, 6))


@pytest.mark.parametrize("kind", [ImageData, PublicPets])
def test_a_folder_of_classes_alone_is_split(make, pets, kind):
    """Also where a public set has the class's name: it is not taken for the folder of its files."""
    data = prepared(make(pets / "train", kind=kind, image_size=(8, 6)))
    assert data.class_names == ["cat", "dog"]
    assert set(data.sizes) == {"train", "val", "test"}
    empty = refusal(make(pets / "train/cat", dataset="folder").survey)
    assert f"there are no images in {pets}/train/cat/<class>/" in empty


def test_one_picture_in_two_classes_or_in_two_splits(make, pets, said):
    shutil.copy(pets / "train/cat/03.png", pets / "train/dog/copy.png")
    shutil.copy(pets / "train/cat/05.png", pets / "test/cat/copy.png")
    prepared(make(pets))
    assert "cat/03.png (cat)" in said[-2]
    assert "dog/copy.png (dog) are the same picture (such pictures: 1)" in said[-2]
    assert "training has 1 of the 10 images for evaluation, too" in said[-1]


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1"])
def test_heic_names_its_package(make, pets, monkeypatch, brand):
    """Whatever ends the name: phones also call them .jpg."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    find_kinds.cache_clear()
    for name in ("a.HEIC", "b.jpg"):
        (pets / "train/cat" / name).write_bytes(b"\0\0\0\x18ftyp" + brand + bytes(20))
    message = refusal(prepared, make(pets))
    assert "2 of 38 images" in message
    assert "(HEIC, which pip install pillow-heif reads)" in message


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
    options = {"file_column": "image", "target": "class", "split_column": "part"}
    data = prepared(make(path, **options))
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.labels("test").tolist() == [1, 0] * 3
    assert (take(data, "test") == pixels(path.parent / "images/14.png").numpy()).all()
    status = path.stat()
    table(text.replace("14.png;dog", "14.png;cat"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepared(make(path, **options)).labels("test").tolist() == [0, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            f"file,label\n{ROWS[0]}\nimages/2.png,\n{ROWS[3]}\n,cat\n",
            {},
            "{path}: 2 of 4 rows can't be used: row 5 ('file' is missing), row 3 (",
        ),
        (f"file,label\n{ROWS[0]}\n{ROWS[2]}\n{ROWS[4]}\n", {}, "{path}: all training samples are"),
        (
            "file\na.png\n",
            {},
            "{path}: there is no column 'label', only 'file'; correct it, or set",
        ),
        ("", {"path": "gone", "dataset": "folder"}, "data.path: there is no folder gone; name one"),
    ],
)
def test_what_is_refused(make, table, text, settings, message):
    path = table(text)
    line = refusal(lambda: prepared(make(**{"path": path, **settings})))
    assert line.startswith(message.format(path=path))
