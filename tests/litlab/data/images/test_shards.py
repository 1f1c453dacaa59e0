"""Images in shards: written, read by any number of processes and workers, damaged."""

import shutil
from pathlib import Path

import pytest
import torch

from litlab.commands.shards.shards import main
from litlab.data import ImageData
from litlab.data.images.shards import write_shards
from litlab.data.store import new_folder
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.images.conftest import write_image
from tests.tiny_files import flip

SIZE = (8, 6)
SETTINGS = {"batch_size": 7, "shuffle_shards": 2}


def write(photos, folder, size=700, **settings):
    data = ImageData(
        "folder",
        str(photos),
        cache="none",
        image_size=SIZE,
        cache_dir=str(folder.parent),
        **settings,
    )
    with new_folder(folder) as staging:
        write_shards(prepared(data), staging, size)
    return data


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """60 images of two classes, of which 6 become the validation split, and 10 to test on."""
    root = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 60), ("test", 10)):
        for number in range(count):
            write_image(
                root / split / "ab"[number > count // 2] / f"{number:02}.png",
                SIZE,
                seed=count + number,
            )
    return root


@pytest.fixture(scope="module")
def shards(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards") / "folder"
    write(photos, folder)
    return folder


def list_images(batches):
    """All images by their bytes, with their classes, sorted."""
    return sorted(
        (image.numpy().tobytes(), int(label))
        for batch in batches
        for image, label in zip(batch["image"], batch["label"], strict=True)
    )


@pytest.mark.parametrize(("ranks", "workers"), [(1, 2), (3, 0)])
def test_every_image_once_whatever_the_ranks_and_workers(shards, photos, tmp_path, ranks, workers):
    batches = []
    for rank in range(ranks):
        data = ImageData("shards", str(shards), num_workers=workers, **SETTINGS)
        data.trainer = a_rank(rank, ranks)
        data.setup()
        batches += data.train_dataloader()
    assert len(data.shards.sizes("train")) > 10
    original = write(photos, tmp_path / "again")
    assert list_images(batches) == list_images([original.samples("train")[torch.arange(54)]])
    assert not data.labels("train").equal(original.labels("train")), "files can be sorted by class"


def test_what_is_known_of_the_images_is_known_of_the_shards(shards, photos, tmp_path):
    data, original = (
        prepared(ImageData("shards", str(shards), **SETTINGS)),
        write(photos, tmp_path / "again"),
    )
    assert data.state_dict() == original.state_dict()
    assert data.baselines() == {}
    assert data.description.startswith(
        f"shards {shards}: 54 train / 6 val / 10 test images of 3 x 8 x 6, 2 classes"
    )
    again = ImageData("shards", str(tmp_path / "again"))
    assert data.fingerprint == ImageData("shards", str(shards)).fingerprint != again.fingerprint


def test_what_can_not_be_is_refused(shards, tmp_path):
    for setting in ({"fold": "0/5"}, {"balance": "even"}):
        assert refusal(ImageData, "shards", str(shards), **setting).startswith(
            "data.fold, data.balance: "
        )
    assert refusal(main, ["--output", str(shards)]).startswith(f"--output: {shards} ")
    made = prepared(ImageData("generated", image_size=SIZE, cache_dir=str(tmp_path / "cache")))
    assert refusal(write_shards, made, tmp_path, 1).endswith("set data.path")


def test_a_folder_appears_when_it_is_whole(photos, tmp_path):
    copy = shutil.copytree(photos, tmp_path / "photos")
    data = ImageData(
        "folder", str(copy), cache="none", image_size=SIZE, cache_dir=str(tmp_path / "cache")
    )
    prepared(data)
    next(copy.glob("test/b/*")).unlink()
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "half") as staging:
        write_shards(data, staging, 700)
    assert {path.name for path in tmp_path.iterdir()} <= {"photos", "cache"}


class Trap:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("marker"),)


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        ("train/1.bin", None, "/train can't be read (["),
        (
            "train/1.bin",
            b"a",
            "/train can't be read (1.bin is damaged); copy or write the shards again",
        ),
        ("train/1.bin", 0.5, "/train can't be read (1.bin is damaged)"),
        ("about.pt", 0.5, " can't be read (about/data/0 is damaged)"),
        ("about.pt", {"metadata": Trap()}, " can't be read (Weights only load failed."),
        ("about.pt", {"version": 5}, " holds no shards of version "),
    ],
)
def test_damage_is_one_line_and_no_code_runs(shards, tmp_path, monkeypatch, file, damage, line):
    """A shard index that named a class made a library import it."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(shards, tmp_path / "copy")
    path = folder / file
    if damage is None:
        path.unlink()
    elif isinstance(damage, float):
        flip(path, damage)
    elif isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        torch.save({**torch.load(path), **damage}, path)
    message = refusal(
        lambda: list(prepared(ImageData("shards", str(folder), **SETTINGS)).train_dataloader())
    )
    assert message.startswith(f"data.path: {folder}{line}")
    assert not Path("marker").exists()
