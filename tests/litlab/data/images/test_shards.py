"""Images in shards: written, read by any number of processes and workers, damaged."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from litlab.commands.shards.shards import main
from litlab.data import ImageData
from litlab.data.images.shards import write_shards
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.images.conftest import pixels, take, write_images
from tests.tiny_files import flip

SETTINGS = {"batch_size": 7, "shuffle_shards": 2, "image_size": (8, 6)}


def open_photos(photos):
    return prepared(ImageData(path=photos, cache="none", **SETTINGS))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """60 images of two classes, of which 6 become the validation split, and 10 to test on."""
    root = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 60), ("test", 10)):
        write_images(root / split, count)
    return root


@pytest.fixture(scope="module")
def shards(photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(open_photos(photos), folder, 700)
    return folder


def list_images(batches):
    """All images by their bytes, with their classes, sorted."""
    return sorted(
        (image.numpy().tobytes(), int(label))
        for batch in batches
        for image, label in zip(batch["image"], batch["target"], strict=True)
    )


@pytest.mark.parametrize(("ranks", "workers"), [(1, 2), (3, 0)])
def test_every_image_once_whatever_the_ranks_and_workers(shards, photos, ranks, workers):
    batches = []
    for rank in range(ranks):
        data = ImageData(path=shards, num_workers=workers, **SETTINGS)
        data.trainer = a_rank(rank, ranks)
        data.setup()
        batches += data.train_dataloader()
    assert len(list(shards.glob("train/*.tar"))) > 10
    original = open_photos(photos)
    assert list_images(batches) == list_images([original.samples("train")[torch.arange(54)]])
    assert not data.labels("train").equal(original.labels("train")), "files can be sorted by class"


def test_fingerprint_folds_and_baselines_of_shards(shards, photos, tmp_path):
    data = prepared(ImageData(path=shards, **SETTINGS))
    assert [*data.baselines()] == ["most frequent class"]
    write_shards(open_photos(photos), tmp_path, 700)
    assert data.fingerprint == ImageData(path=tmp_path, **SETTINGS).fingerprint
    assert prepared(ImageData(path=shards, fold="0/3", **SETTINGS)).sizes["test"] == 18


def test_what_can_not_be_is_refused(shards, tmp_path):
    assert "data.balance: " in refusal(ImageData, path=shards, balance="even")
    for path in (tmp_path, tmp_path / "gone.tar"):
        line = refusal(ImageData("shards", path).survey)
        assert f"there are no shards (*.tar) in {path}" in line
    assert refusal(main, ["--output", str(shards)]).startswith(f"--output: {shards} ")
    assert refusal(write_shards, ImageData("generated"), tmp_path, 1).endswith("set data.path")


def damage_pixels(path):
    content = path.read_bytes()
    flip(path, (content.index(b"IDAT") + 9) / len(content))


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        ("train/000001.tar", Path.unlink, "/index.parquet is of other shards than those in "),
        ("train/000001.tar", lambda path: path.write_bytes(b"a"), "/train/000001.tar can't be re"),
        ("train/000001.tar", damage_pixels, "/train/000001.tar can't be read (it is damaged); "),
        ("index.parquet", lambda path: flip(path, 0.3), " can't be read ("),
    ],
)
def test_damage_is_one_line(shards, tmp_path, file, damage, line):
    folder = shutil.copytree(shards, tmp_path / "copy")
    damage(folder / file)
    data = ImageData(path=folder, **SETTINGS)
    message = refusal(lambda: list(prepared(data).train_dataloader()))
    assert message.startswith(f"data.path: {folder}{line}")


# ---- those of others


def is_b(file):
    """The class of an image."""
    return int(file.parent.name == "b")


def check_first(data, files):
    """The first test sample is the one of its row, with its class."""
    file = files[int(data.by_split["test"].positions[0])]
    assert (take(data, "test") == pixels(file).numpy()).all()
    assert data.labels("test")[0] == is_b(file)


def write_tar(path, files, tell):
    """Write images, and what is told of each by the end of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for file in files:
            for end, content in {"png": file.read_bytes(), **tell(file)}.items():
                member = tarfile.TarInfo(f"x/{file.stem}.{end}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("kind", "names"), [("cls", "{split}-{number:04}.tar"), ("json", "{split}/{number}.tar")]
)
def test_shards_of_others(photos, tmp_path, kind, names):
    """Also with more images and texts of a sample than are read, and folders in names."""

    def tell(file):
        label = is_b(file) if kind == "cls" else {"label": is_b(file), "tags": [1, 2]}
        return {kind: json.dumps(label).encode(), "seg.png": b"another", "txt": b"a text"}

    files = sorted(photos.glob("train/*/*.png"))
    for number, block in enumerate((files[:30], files[30:40], files[40:], files[:8])):
        split = "validation" if number == 3 else "train"
        write_tar(tmp_path / names.format(split=split, number=number), block, tell)
    data = ImageData(path=str(tmp_path), **SETTINGS)
    assert prepared(data).sizes == {"train": 60, "val": 8}
    assert data.class_names == ["0", "1"]
    expected = sorted((pixels(file).numpy().tobytes(), is_b(file)) for file in files)
    assert list_images(data.train_dataloader()) == expected
    (index,) = Path("data/cache").glob("*/index.parquet")
    written = index.stat().st_mtime_ns
    prepared(ImageData(**data.hparams))
    assert index.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["pets.tar", "train-0.tar", "val/7.TAR"])
def test_a_single_tar_file(photos, tmp_path, name):
    """Its name says nothing of a split, and what lies beside it does not count."""
    files, path = sorted(photos.glob("train/*/*.png")), tmp_path / name
    new = tmp_path / "new"
    for tar, some in ((path, files), (tmp_path / "other.tar", files[:10]), (new, files[::-1])):
        write_tar(tar, some, lambda file: {"cls": file.parent.name.encode()})
    path.with_name("index.parquet").write_bytes(b"of others")
    data = prepared(ImageData(path=path, **SETTINGS))
    assert data.sizes == {"train": 48, "val": 6, "test": 6}
    assert data.class_names == ["a", "b"]
    check_first(data, files)

    # Another file takes its place while this process goes on
    new.replace(path)
    check_first(prepared(ImageData(path=path, **SETTINGS)), files[::-1])


@pytest.mark.parametrize(
    ("name", "image", "has_names"),
    [
        ("{split}-00000-of-00002", "image", True),
        ("data/{split}-0", "img", False),
        ("one file", "image", True),
    ],
)
def test_parquet_as_hugging_face_keeps_it(photos, name, image, has_names):
    """https://huggingface.co/docs/hub/datasets-image: bytes and path, and classes as numbers."""
    is_one, files = name == "one file", []
    notes = {"info": {"features": {"kind": {"names": ["first", "second"], "_type": "ClassLabel"}}}}
    for split in ["train"] if is_one else ["test", "train"]:
        some = sorted(photos.glob(f"{split}/*/*.png"))
        files += some
        cells = {
            image: [{"bytes": file.read_bytes(), "path": file.name} for file in some],
            "kind": [is_b(file) for file in some],
            "boxes": [[1, 2]] * len(some),
        }
        metadata = {"huggingface": json.dumps(notes)} if has_names else None
        path = Path("set", f"{name.format(split=split)}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(cells).replace_schema_metadata(metadata), path)
    source = path if is_one else "set"
    data = ImageData(path=source, target="kind")
    assert [*prepared(data).sizes.values()] == ([48, 6, 6] if is_one else [54, 6, 10])
    assert data.class_names == (["first", "second"] if has_names else ["0", "1"])
    check_first(data, files)
