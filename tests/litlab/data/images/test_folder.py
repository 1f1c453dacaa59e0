"""Folders of images as they are on real disks: links, pipes, names in other encodings, copies."""

import csv
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from litlab.data.table import write_classes

from litlab.data.images import folder
from litlab.data.images.copies import check_copies
from litlab.data.images.decode import peek
from litlab.data.images.folder import list_folder
from litlab.data.images.predictions import find_images
from litlab.errors import UserError
from tests.litlab.data.images.conftest import write_image

NOT_UTF8 = os.fsdecode(b"caf\xe9")


def link(target: Path | str, place: Path) -> None:
    place.symlink_to(target, target_is_directory=True)


# What a folder may hold that is no harm: (change, number of images in train/)
HARMLESS = {
    "a loop": (lambda root: link(".", root / "train/cat/loop"), 30),
    "two loops": (lambda root: [link(".", root / f"train/cat/{name}") for name in "ab"], 30),
    "a folder twice": (
        lambda root: [write_image(root / "train/cat/deep/x.png", seed=1), link("deep", root / "train/cat/again")],
        31,
    ),
    "hidden folders": (lambda root: write_image(root / "train/cat/.ipynb_checkpoints/x.png", seed=1), 30),
    "capitals": (lambda root: write_image(root / "train/cat/X.PNG", seed=1), 31),
    "not UTF-8": (lambda root: write_image(root / f"train/cat/{NOT_UTF8}.png", seed=1), 31),
    "a linked class": (
        lambda root: [shutil.move(root / "train/cat", root.parent), link(root.parent / "cat", root / "train/cat")],
        30,
    ),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_every_image_is_listed_once(image_folder, case):
    change, count = HARMLESS[case]
    change(image_folder)
    listing = list_folder(image_folder)
    check_copies(listing)
    assert len(listing.files["train"]) == len(set(listing.files["train"])) == count
    assert listing.labels["train"].tolist() == [name.startswith("train/dog") for name in listing.files["train"]]
    assert listing.fingerprint


# (change, what the one line says)
REFUSED = {
    "up": (lambda root: link("..", root / "train/cat/up"), "/train/cat/up: a link to {root}/train, which "),
    "everything": (lambda root: link("/", root / "train/cat/all"), "/train/cat/all: a link to /, which "),
    "another class": (
        lambda root: link("../dog", root / "train/cat/dogs"),
        r"/train/cat/dogs/00.png and {root}/train/dog/00.png (and 9 more images) are the same image in two classes, "
        "'cat' and 'dog'; delete the wrong one",
    ),
    "two names of a class": (lambda root: link("cat", root / "train/kitten"), "the same image in two classes, 'cat'"),
    "a hard link": (
        lambda root: os.link(root / "train/dog/01.png", root / "train/cat/x.png"),
        "/train/cat/x.png and {root}/train/dog/01.png are the same image",
    ),
    "a copy in another split": (
        lambda root: shutil.copy(root / "train/dog/01.png", root / "test/cat/x.png"),
        "/train/dog/01.png and {root}/test/cat/x.png are the same image",
    ),
    "broken links": (
        lambda root: [link("gone", root / f"train/cat/{name}.png") for name in "xyz"],
        "/train/cat/x.png (and 2 more): a broken link (No such file or directory); replace or delete it",
    ),
    "a link to itself": (lambda root: link("x.png", root / "train/cat/x.png"), "/train/cat/x.png: a broken link ("),
    "a broken folder": (lambda root: link("gone", root / "train/cat/more"), "/train/cat/more: a broken link; correct"),
    "a broken class": (lambda root: link("gone", root / "train/cow"), "/train/cow: a broken link; correct or delete"),
    "a broken split": (lambda root: link("gone", root / "val"), "/val: not a folder, or a broken link; replace"),
    "a split that is a file": (lambda root: (root / "val").touch(), "/val: not a folder, or a broken link; replace"),
    "a pipe": (lambda root: os.mkfifo(root / "train/cat/x.png"), "/train/cat/x.png: a pipe, a device or a folder"),
    "a pipe as first image": (lambda root: os.mkfifo(root / "train/cat/0.png"), "/train/cat/0.png: a pipe, a device"),
    "a device": (lambda root: link("/dev/zero", root / "train/cat/x.png"), "/train/cat/x.png: a pipe, a device"),
    "a class not in UTF-8": (
        lambda root: write_image(root / f"train/{NOT_UTF8}/x.png", seed=1),
        r"/train/caf\udce9: the name of this class is not UTF-8; rename the folder",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_train_on_something_else_is_refused(make_data, image_folder, case):
    change, says = REFUSED[case]
    change(image_folder)
    with pytest.raises(UserError) as error:
        make_data(dataset="folder", path=str(image_folder)).prepare_data()
    assert str(error.value).startswith(f"{image_folder}/")
    assert says.format(root=image_folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_unreadable_folders_are_named(image_folder, monkeypatch):
    """Tests may run as root, who can read everything."""
    (image_folder / "train/cat/more").mkdir()

    def scandir(path):
        if Path(path).name == "more":
            raise PermissionError(13, "Permission denied")
        return os_scandir(path)

    os_scandir = os.scandir
    monkeypatch.setattr(folder.os, "scandir", scandir)
    with pytest.raises(UserError, match=r"train/cat/more: this folder can't be read \(Permission denied\); change"):
        list_folder(image_folder)


def test_what_is_left_out_is_told(image_folder, caplog):
    shutil.copytree(image_folder / "test", image_folder / "valid")
    (image_folder / "notes").mkdir()
    link("gone", image_folder / "README")
    write_image(image_folder / "train/loose.png")
    with caplog.at_level("INFO", "lightning.pytorch"):
        list_folder(image_folder)
    assert [record.getMessage() for record in caplog.records] == [
        f"{image_folder}/train: 1 images outside the class folders are left out, such as loose.png",
        f"{image_folder}/valid is left out: only train/, val/ and test/ are read",
    ]


def test_images_of_two_splits_are_counted(make_data, image_folder, caplog):
    link("train", image_folder / "val")
    for number in (3, 4):
        shutil.copy(image_folder / f"train/dog/0{number}.png", image_folder / f"test/dog/{number}.png")
    with caplog.at_level("INFO", "lightning.pytorch"):
        make_data(dataset="folder", path=str(image_folder)).prepare_data()
    told = [record.getMessage() for record in caplog.records]
    assert f"{image_folder}: 30 images of val are in train too, the first {image_folder}/val/cat/00.png (as " in told[0]
    assert f"{image_folder}: 2 images of test are in train too, the first {image_folder}/test/dog/3.png (as " in told[1]
    assert "results on them will look better than they are" in told[1]
    assert len(told) == 3
    caplog.clear()
    shutil.rmtree(image_folder / "test")
    (image_folder / "val").unlink()
    shutil.copy(image_folder / "train/dog/03.png", image_folder / "train/dog/x.png")
    with caplog.at_level("INFO", "lightning.pytorch"):
        make_data(dataset="folder", path=str(image_folder)).prepare_data()
    assert f"{image_folder}: 1 images of train are copies of others there" in caplog.text


def test_images_of_one_size_and_end_are_compared_whole(image_folder):
    for name, start in (("cat/x.png", b"a"), ("dog/x.png", b"b")):
        (image_folder / "train" / name).write_bytes(start * 100 + bytes(5000))
    check_copies(list_folder(image_folder))


# ---- predicting


def test_images_to_predict(tmp_path, monkeypatch):
    root = tmp_path / "photos"
    for name in ("a.png", "deep/B.PNG", f"{NOT_UTF8}.png", ".hidden.png", ".hidden/c.png", "[1].png"):
        write_image(root / name)
    for name in ("loop", "again"):
        link(".", root / "deep" / name)
    names = ["[1].png", "a.png", f"{NOT_UTF8}.png", "deep/B.PNG"]

    def found(source) -> list[str]:
        return [os.path.relpath(file, root) for file in find_images(str(source))]

    assert sorted(found(root)) == sorted(names)
    assert sorted(found(root / "**" / "*")) == sorted(names)
    assert found(root / "**.png") == [name for name in names if "/" not in name]
    assert found(root / "[1].png") == ["[1].png"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert found("~/photos/a.png") == ["a.png"]


@pytest.mark.parametrize(
    ("make", "source", "says"),
    [
        (os.mkfifo, "x.png", "x.png: a pipe, a device or a folder, not an image; replace or delete it"),
        (os.mkfifo, "", "x.png: a pipe, a device or a folder, not an image; replace or delete it"),
        (lambda path: link("gone", path), "x.png", "x.png: a broken link (No such file or directory)"),
        (lambda path: link("gone", path), "", "x.png: a broken link (No such file or directory)"),
        (lambda path: path.with_suffix(".csv").write_text("text\na"), "x.csv", "x.csv: not an image; give one, a "),
        (lambda path: path.with_suffix(".csv").write_text("text\na"), "", "no images in it (.jpg, "),
        (lambda path: link("..", path.with_name("up")), "", "up: a link to "),
    ],
)
def test_what_is_no_image_to_predict(tmp_path, make, source, says):
    (tmp_path / "photos").mkdir()
    make(tmp_path / "photos/x.png")
    with pytest.raises(UserError, match=re.escape(says)):
        find_images(str(tmp_path / "photos" / source))


def test_names_that_are_not_utf8_are_written_as_they_are(tmp_path):
    write_image(tmp_path / f"{NOT_UTF8}.png")
    files = [tmp_path / f"{NOT_UTF8}.png"]
    write_classes(tmp_path / "out.csv", {"file": files}, files, ["a", "b"], torch.tensor([[0.25, 0.75]]))
    with (tmp_path / "out.csv").open(newline="", errors="surrogateescape") as stream:
        (row,) = csv.DictReader(stream)
    assert Path(row["file"]).is_file()


def test_a_name_of_two_lines_makes_one_line_of_error(tmp_path):
    (tmp_path / "two\nlines.png").write_text("no image")
    with pytest.raises(UserError, match=r"two\\nlines\.png: unreadable image \(not an image\); replace or delete it$"):
        peek(tmp_path / "two\nlines.png")
