"""Images in shards: written, read by any number of processes and workers, damaged."""

import io
import json
import shutil
import tarfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from litlab.commands.shards.shards import main
from litlab.data import ImageData
from litlab.data.images.shards import write_shards
from litlab.data.store import new_folder
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.images.conftest import pixels, take, write_image
from tests.tiny_files import flip

SIZE = (8, 6)
SETTINGS = {"batch_size": 7, "shuffle_shards": 2, "image_size": SIZE}


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
        for image, label in zip(batch["image"], batch["target"], strict=True)
    )


@pytest.mark.parametrize(("ranks", "workers"), [(1, 2), (3, 0)])
def test_every_image_once_whatever_the_ranks_and_workers(shards, photos, tmp_path, ranks, workers):
    batches = []
    for rank in range(ranks):
        data = ImageData("shards", str(shards), num_workers=workers, **SETTINGS)
        data.trainer = a_rank(rank, ranks)
        data.setup()
        batches += data.train_dataloader()
    assert len(list(shards.glob("train/*.tar"))) > 10
    original = write(photos, tmp_path / "again")
    assert list_images(batches) == list_images([original.samples("train")[torch.arange(54)]])
    assert not data.labels("train").equal(original.labels("train")), "files can be sorted by class"


def test_what_is_known_of_the_images_is_known_of_the_shards(shards, photos, tmp_path):
    settings = {"normalize": "imagenet", **SETTINGS}
    data = prepared(ImageData("shards", str(shards), **settings))
    original = write(photos, tmp_path / "again", normalize="imagenet")
    assert data.state_dict() == original.state_dict()
    assert [*data.baselines()] == ["most frequent class"]
    assert data.description.startswith(
        f"shards {shards}: 54 train / 6 val / 10 test images of 3 x 8 x 6, 2 classes"
    )
    again = ImageData(path=str(tmp_path / "again"), **SETTINGS)
    assert data.fingerprint == again.fingerprint
    assert prepared(ImageData(path=str(shards), fold="0/3", **SETTINGS)).sizes["test"] == 18


def test_what_can_not_be_is_refused(shards, tmp_path):
    message = refusal(ImageData, "shards", str(shards), balance="even")
    assert message.startswith("data.balance: ")
    assert "no shards (*.tar)" in refusal(ImageData("shards", str(tmp_path)).survey)
    assert refusal(main, ["--output", str(shards)]).startswith(f"--output: {shards} ")
    generated = ImageData("generated", image_size=SIZE, cache_dir=str(tmp_path / "cache"))
    assert refusal(write_shards, prepared(generated), tmp_path, 1).endswith("set data.path")


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


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        ("train/000001.tar", None, "/index.parquet is of other shards than those in "),
        (
            "train/000001.tar",
            b"a",
            "/train/000001.tar can't be read (it is damaged); copy or write the ",
        ),
        (
            "train/000001.tar",
            "pixels",
            "/train/000001.tar can't be read (it is damaged); copy or write the ",
        ),
        ("index.parquet", 0.3, " can't be read ("),
        ("index.parquet", b"a", " can't be read ("),
    ],
)
def test_damage_is_one_line(shards, tmp_path, file, damage, line):
    folder = shutil.copytree(shards, tmp_path / "copy")
    path = folder / file
    if damage is None:
        path.unlink()
    elif damage == "pixels":
        content = path.read_bytes()
        flip(path, (content.index(b"IDAT") + 9) / len(content))
    elif isinstance(damage, float):
        flip(path, damage)
    else:
        path.write_bytes(damage)
    message = refusal(
        lambda: list(prepared(ImageData("shards", str(folder), **SETTINGS)).train_dataloader())
    )
    assert message.startswith(f"data.path: {folder}{line}")


# ---- those of others


def write_tar(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("names", ["{split}-{number:04}.tar", "{split}/{number}.tar"])
@pytest.mark.parametrize("kind", ["cls", "json"])
def test_shards_of_others(photos, tmp_path, names, kind):
    """Also with more images and texts of a sample than are read, and folders in names."""
    files = sorted(photos.glob("train/*/*.png"))
    for number, block in enumerate((files[:30], files[30:40], files[40:], files[:8])):
        parts = []
        for file in block:
            label = int(file.parent.name == "b")
            told = str(label) if kind == "cls" else json.dumps({"label": label, "tags": [1, 2]})
            stem = f"x/{file.stem}"
            parts += [(f"{stem}.{kind}", told.encode()), (f"{stem}.png", file.read_bytes())]
            parts += [(f"{stem}.seg.png", b"another"), (f"{stem}.txt", b"a text")]
        split = "validation" if number == 3 else "train"
        write_tar(tmp_path / "set" / names.format(split=split, number=number), parts)
    data = ImageData(path=str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"), **SETTINGS)
    assert prepared(data).sizes == {"train": 60, "val": 8}
    assert data.class_names == ["0", "1"]
    batches = data.train_dataloader()
    assert list_images(batches) == sorted(
        (pixels(file).numpy().tobytes(), int(file.parent.name == "b")) for file in files
    )
    (index,) = (tmp_path / "cache").glob("*/index.parquet")
    written = index.stat().st_mtime_ns
    assert prepared(ImageData(**data.hparams)).sizes == data.sizes
    assert index.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["pets.tar", "train-0.tar", "val/7.TAR"])
def test_a_single_tar_file(photos, tmp_path, name):
    """Its name says nothing of a split, and what lies beside it does not count."""
    parts = []
    for file in sorted(photos.glob("train/*/*.png")):
        label = {"label": file.parent.name, "number": int(file.stem)}
        parts += [(f"{file.stem}.png", file.read_bytes())]
        parts += [(f"{file.stem}.json", json.dumps(label).encode())]
    write_tar(tmp_path / "set" / name, parts)
    write_tar(tmp_path / "set/other.tar", parts[:20])
    (tmp_path / "set" / name).with_name("index.parquet").write_bytes(b"of others")
    settings = {"cache_dir": str(tmp_path / "cache"), **SETTINGS}
    data = prepared(ImageData(path=str(tmp_path / "set" / name), **settings))
    assert data.sizes == {"train": 48, "val": 6, "test": 6}
    assert data.class_names == ["a", "b"]
    first = int(data.parts["test"].rows[0])
    assert (take(data, "test") == pixels(sorted(photos.glob("train/*/*.png"))[first]).numpy()).all()
    assert sum(len(images) for images, _ in data.batches("train")) == 48
    # As a table that says it
    again = ImageData(path=str(tmp_path / "set" / name), target="number", time_column="number",
                      task="regression", **settings)  # fmt: skip
    assert prepared(again).sizes["test"] == 6
    gone = ImageData(path=str(tmp_path / "gone.tar"), **settings)
    assert refusal(gone.survey).startswith(f"data.path: there are no shards (*.tar) in {tmp_path}/")


@pytest.mark.parametrize("place", ["train-00000-of-00002", "data/train-0", "one file"])
@pytest.mark.parametrize("columns", [("image", "label"), ("img", "fine_label")])
@pytest.mark.parametrize("has_names", [True, False])
def test_parquet_as_hugging_face_keeps_it(photos, tmp_path, place, columns, has_names):
    """https://huggingface.co/docs/hub/datasets-image: bytes and path, and classes as numbers."""
    image, label = columns
    names = {"info": {"features": {label: {"names": ["first", "second"], "_type": "ClassLabel"}}}}
    for split in ("train", "test"):
        files = sorted(photos.glob(f"{split}/*/*.png"))
        frame = pd.DataFrame(
            {
                image: [{"bytes": file.read_bytes(), "path": file.name} for file in files],
                label: [int(file.parent.name == "b") for file in files],
                "boxes": [[1, 2]] * len(files),
            }
        )
        table = pa.Table.from_pandas(frame)
        if has_names:
            table = table.replace_schema_metadata({"huggingface": json.dumps(names)})
        name = f"{place}.parquet".replace("train", split)
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / "set" / name)
        if place == "one file":
            break
    path = tmp_path / "set" / ("one file.parquet" if place == "one file" else "")
    settings = {"target": label, "cache_dir": str(tmp_path / "cache")}
    data = prepared(ImageData(path=str(path), **settings))
    counts = (48, 6, 6) if place == "one file" else (54, 6, 10)
    assert tuple(data.sizes.values()) == counts
    assert data.class_names == (["first", "second"] if has_names else ["0", "1"])
    number = int(data.parts["test"].rows[0])
    names = sorted(photos.glob("train/*/*.png")) + sorted(photos.glob("test/*/*.png"))
    files = names if place == "one file" else [*names[60:], *names[:60]]
    assert (take(data, "test") == pixels(files[number]).numpy()).all()
    assert int(data.labels("test")[0]) == (files[number].parent.name == "b")
