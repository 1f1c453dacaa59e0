"""Images that are decoded whenever they come into a batch, from files and from shards."""

import random
from pathlib import Path

import pytest
import torch
from torchvision.transforms import v2

from litlab.data import Augment
from litlab.data.images.shards import write_shards
from tests.litlab.conftest import BRIEF, CONFIGS
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import make, write_images


class Tilt(torch.nn.Module):
    """Draws from Python's generator as from torch's, and keeps the shapes that it gets."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def forward(self, image):
        assert image.dtype == torch.uint8
        self.seen.add(tuple(image.shape))
        return image.roll((random.randrange(4), int(torch.randint(4, ()))), (1, 2))


@pytest.fixture
def photos():
    """24 images of two classes and different sizes, and 8 to test on."""
    for split, count in (("train", 24), ("test", 8)):
        folder = Path("photos", split)
        write_images(folder, count, size=lambda number: (12 + number % 3, 10 + number % 4))
    return "photos"


@pytest.fixture
def open_source(photos, tmp_path):
    """Opens the images, as they are or in shards."""

    def open_it(kind, **settings):
        settings |= {"image_size": (8, 6), "cache": "none"}
        files, folder = make(photos, **settings), tmp_path / "shards"
        if kind == "shards" and not folder.exists():
            folder.mkdir()
            write_shards(prepared(files), folder, 2000)
        return files if kind == "files" else make(folder, **settings)

    return open_it


@pytest.mark.parametrize(
    ("kind", "splits"), [("files", ("train", "val", "test")), ("shards", ("val", "test"))]
)
def test_batches_are_those_of_decoded_images(photos, open_source, kind, splits):
    settings = {"augment": Augment(crop=2, flip="random"), "batch_size": 7, "normalize": "imagenet"}
    kept = make(photos, image_size=(8, 6), **settings)
    read = open_source(kind, num_workers=2, **settings)
    for split in splits:
        batches, others = (list(data.batches(split, 1)) for data in (kept, read))
        torch.testing.assert_close(batches, others, rtol=0, atol=1e-6)
    assert kept.metadata == read.metadata
    assert read.sizes == {"train": 22, "val": 2, "test": 8}


def test_damage_and_wrong_transforms_end_in_one_line(pets):
    data = prepared(make(pets, cache="none", num_workers=1, batch_size=30, val_fraction=0.0))
    file = pets / "train/cat/07.png"
    file.write_bytes(file.read_bytes()[:60])
    batches = iter(data.train_dataloader())
    line = refusal(next, batches)
    assert line.startswith(f"data.path: {file}: ")
    assert "; replace or delete it" in line
    batches._shutdown_workers()  # as part of a traceback they would be waited for
    wrong = make(pets, cache="none", transform=[v2.ToDtype(torch.float32)], normalize="imagenet")
    line = "data.transform: the last one returns torch.float32, not uint8"
    assert refusal(next, wrong.batches("train")).startswith(line)


@pytest.mark.parametrize("kind", ["files", "shards"])
def test_transforms_follow_from_seed_epoch_and_number(open_source, kind):
    def images(epoch=1, seed=1, workers=0):
        data = open_source(kind, transform=[Tilt()], seed=seed, num_workers=workers)
        torch.manual_seed(workers)
        random.seed(workers)
        state = torch.get_rng_state()
        result = torch.cat([images for images, _ in data.batches("train", epoch)])
        assert torch.get_rng_state().equal(state)
        return result

    first = images()
    assert first.equal(images(workers=2))
    for other in (images(0), images(seed=2)):
        assert not first.equal(other)


def test_transforms_get_whole_images_of_their_own_size_in_training_only(open_source):
    tilt = Tilt()
    data = open_source("files", transform=[tilt], val_fraction=0.0)
    list(data.batches("test"))
    assert not tilt.seen
    list(data.batches("train"))
    assert tilt.seen == {(3, 12 + number % 3, 10 + number % 4) for number in range(24)}


def test_from_a_folder_to_a_model_by_commands(run, images):
    """With a transform that a config names by its class."""
    config = f"--config={CONFIGS}/images.yaml --data.dataset"
    flags = f"--data.path={images} --data.cache=none --output=shards --shard_mb=1"
    run(f"shards {config}=folder {flags}").check()
    transform = "{class_path: torchvision.transforms.v2.RandomResizedCrop, init_args: {size: [32]}}"
    Path("with.yaml").write_text(f"data: {{init_args: {{transform: [{transform}]}}}}")
    run(f"fit {config}=shards --config=with.yaml --data.path=shards", *BRIEF).check()
