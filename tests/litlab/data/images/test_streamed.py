"""Images in shards: written, read by any number of processes and workers, damaged, out of reach."""

import csv
import json
import shutil

import pytest
import torch

from litlab.data import ImageData, StreamedImages
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import new_shards
from litlab.errors import UserError
from tests.litlab.conftest import CONFIGS

SIZES = {25: 20_000, 3: 150_000, 1: 10_000_000}  # shards of the training images: bytes of a shard
# litdata leaves files open that it has downloaded.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
FIT = ("fit", "--config", CONFIGS / "images.yaml", "--data=StreamedImages", "--data.batch_size=40")
BRIEF = ("--trainer.accelerator=cpu", "--trainer.max_epochs=1")


@pytest.fixture(scope="module")
def original(images, tmp_path_factory):
    data = ImageData("folder", str(images), cache_dir=str(tmp_path_factory.mktemp("cache")), cache="none")
    data.setup()
    return data


@pytest.fixture(scope="module")
def shards(original, tmp_path_factory):
    """Folders of shards by how many there are."""
    folders = {}
    for count, size in SIZES.items():
        folders[count] = tmp_path_factory.mktemp("shards") / "shards"
        with new_shards(folders[count]) as folder:
            original.write_shards(folder, size)
    return folders


def loaded(folder, split="train", **settings):
    data = StreamedImages(str(folder), batch_size=7, shuffle_shards=2, **settings)
    data.setup()
    return data, data.samples(split)


def contents(batches):
    """All images with their classes, sorted."""
    return sorted(
        (int(label), image.numpy().tobytes())
        for batch in batches
        for image, label in zip(batch["image"], batch["label"], strict=True)
    )


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.matrix), 2])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_image_once_whatever_the_shards_ranks_and_workers(shards, original, count, ranks, workers):
    data, samples = loaded(shards[count], num_workers=workers)
    sizes = data.shards.about["splits"]["train"]["samples"]
    assert abs(len(sizes) - count) <= count // 5
    batches = []
    for rank in range(ranks):
        sampler = ShardBatches(sizes, 7, 2, train=True, seed=1, rank=rank, world_size=ranks)
        batches += list(data.loading.loader(samples, sampler, None, 0))
    assert sorted(torch.cat([batch["index"] for batch in batches]).tolist()) == list(range(160))
    assert contents(batches) == contents([original.samples("train")[torch.arange(160)]])


def test_an_epoch_goes_on_within_it(shards):
    data, samples = loaded(shards[25], num_workers=2)
    whole, rest = data.sampler(samples, "train"), data.sampler(samples, "train")
    whole.set_epoch(2)
    rest.go_on_from(2, 5)
    expected = list(data.loading.loader(samples, whole, None, 0))[5:]
    for batch, other in zip(data.loading.loader(samples, rest, None, 0), expected, strict=True):
        assert all(torch.equal(batch[name], other[name]) for name in batch)


def test_colours_and_classes_are_those_of_the_images(shards, original):
    data, _ = loaded(shards[3])
    assert data.metadata == original.metadata
    assert (data.has_val, data.has_test, data.num_classes) == (True, True, 10)
    assert "160 train / 40 val / 50 test images of 3 x 32 x 32, 10 classes, in shards" in data.description


def test_shards_from_elsewhere_are_kept(shards, tmp_path):
    """litdata copies what an address with `local:` names, as it downloads from object storage."""
    data, samples = loaded(f"local:{shards[25]}", cache_dir=str(tmp_path / "cache"))
    assert contents([samples[torch.arange(160)]]) == contents([loaded(shards[25])[1][torch.arange(160)]])
    sizes = data.shards.about["splits"]["train"]["samples"]
    assert len(list((tmp_path / "cache").rglob("chunk-*.bin"))) >= len(sizes)


def test_from_a_folder_to_predictions(run, images, tmp_path):
    source = ("--data.dataset=folder", f"--data.path={images}", "--data.cache=none")
    written = run("shards", "--config", CONFIGS / "images.yaml", *source, "--output", "shards", "--shard_mb=1")
    assert written.code == 0, written.err
    assert written.out.startswith("Written: shards (160 train / 40 val / 50 test images)")
    assert not (tmp_path / "lightning_logs").exists()
    done = run(*FIT, "--data.path=shards", *BRIEF, "--data.num_workers=2")
    assert done.code == 0, done.err
    assert run("test", "--run", "images").code == 0
    done = run("predict", "--run", "images", "--input", images / "test", "--output", "classes.csv")
    assert done.code == 0, done.err
    with (tmp_path / "classes.csv").open(newline="") as stream:
        assert len(list(csv.reader(stream))) == 51
    again = run("shards", "--config", CONFIGS / "images.yaml", *source, "--output", "shards")
    assert (again.code, again.err.splitlines()[-1]) == (
        2,
        "error: --output: shards is there already; name a new folder",
    )


def test_images_in_memory_are_written_as_png(run, tmp_path):
    done = run("shards", "--config", CONFIGS / "images.yaml", "--output", "made", "--data.dataset=generated")
    assert done.code == 0, done.err
    _, samples = loaded(tmp_path / "made", "test")
    made = ImageData("generated", cache_dir=str(tmp_path / "data/cache"))
    made.setup()
    index = torch.arange(20)
    assert torch.equal(samples[index]["image"], made._images("test")[index]["image"])


def damaged(shards, tmp_path, name):
    folder = tmp_path / "damaged"
    shutil.copytree(shards[3], folder)
    shard = next(iter((folder / "train").glob("chunk-0-1.bin")))
    if name == "missing":
        shard.unlink()
    elif name == "truncated":
        shard.write_bytes(shard.read_bytes()[:1000])
    elif name == "changed":
        shard.write_bytes(bytes(shard.stat().st_size))
    elif name == "no shards":
        shutil.rmtree(folder / "about")
    else:
        file = folder / "about/chunk-0-0.bin"
        file.write_bytes(file.read_bytes().replace(b'"version": 1', b'"version": 7'))
    return folder


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("missing", "train/chunk-0-1.bin is missing; copy the whole folder, or write it again"),
        ("truncated", "train/chunk-0-1.bin is damaged (1,000 bytes instead of "),
        ("changed", "train can't be read ("),
        ("no shards", "holds no shards; write them with the command shards"),
        ("later", "is of version 7, for a later litlab; update it"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_shards_are_told_in_one_line(run, shards, tmp_path, name, line, workers):
    folder = damaged(shards, tmp_path, name)
    done = run(*FIT, f"--data.path={folder}", *BRIEF, f"--data.num_workers={workers}")
    errors = [text for text in done.err.splitlines() if text.startswith("error: ")]
    assert (done.code, len(errors)) == (2, 1), done.err
    assert errors[0].startswith(f"error: data.path: {folder}")
    assert line in errors[0]
    assert "Traceback" not in done.err


def test_storage_out_of_reach_is_told_in_one_line(run, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    done = run(*FIT, "--data.path=s3://nobodys-bucket/shards", *BRIEF)
    assert done.code == 2
    assert "error: data.path: s3://nobodys-bucket/shards can't be read (Unable to locate credentials" in done.err
    assert "Traceback" not in done.err


def test_what_could_run_code_is_not_read(tmp_path):
    litdata = pytest.importorskip("litdata")
    cache = litdata.streaming.Cache(str(tmp_path / "shards/about"), chunk_bytes=1000)
    cache[0] = {"json": json.loads}  # an object, which is pickled
    cache.done()
    cache.merge(1)
    with pytest.raises(UserError, match="was not written by the command shards; reading it could run code"):
        StreamedImages(str(tmp_path / "shards")).setup()


def test_a_damaged_image_leaves_nothing_behind(run, images, tmp_path):
    shutil.copytree(images, tmp_path / "source")
    file = tmp_path / "source/train/class_3/7.png"
    file.write_bytes(file.read_bytes()[:60])
    done = run(
        "shards", "--config", CONFIGS / "images.yaml", "--data.dataset=folder", f"--data.path={tmp_path / 'source'}",
        "--data.cache=none", "--data.image_size=[32,32]", "--output=shards",
    )  # fmt: skip
    assert done.code == 2, done.err
    assert f"error: {file}: unreadable image (" in done.err
    assert [path.name for path in tmp_path.iterdir() if "shards" in path.name] == []
