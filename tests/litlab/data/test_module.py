"""What all DataModules share: the source, and batches."""

from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.testing import assert_close

from litlab.data import Augment, ImageData, TextData
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import Digits
from tests.tiny_files import flip

assert_same = partial(assert_close, rtol=0, atol=0)


@pytest.fixture(params=["images", "texts"])
def make(request):
    """Makes the data, anew at each call."""
    path = str(request.getfixturevalue(request.param))
    common = {"path": path, "batch_size": 30, "seed": 3}
    if request.param == "images":
        return partial(ImageData, augment=Augment(crop=2, flip="random"), **common)
    return partial(TextData, max_tokens=8, long_texts="crop", **common)


def test_batches_for_loops_of_ones_own_are_those_of_a_trainer(make):
    """Whoever prepares them."""
    model, data, seen = BoringModel(), make(num_workers=1, persistent_workers=True), {}

    def step(batch):
        seen.setdefault((trainer.state.stage.value, trainer.current_epoch), []).append(batch)
        return model.loss(model(torch.ones(1, 32)))

    model.step = step
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "use_distributed_sampler": False}
    trainer = make_trainer(".", **options)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    alone = make()  # which nothing was prepared for
    # Each has its own epoch
    together = list(zip(alone.batches("train", 0), alone.batches("train", 1), strict=True))
    for epoch in (0, 1):
        assert_same([batches[epoch] for batches in together], seen["train", epoch])
    assert_same(list(alone.batches("val", epoch=1)), seen["validate", 0])
    assert_same(list(alone.batches("test")), seen["test", 2])
    with pytest.raises(AssertionError):
        assert_same(seen["train", 0], seen["train", 1])
    assert next(alone.batches("val", device="meta"))[1].is_meta


@pytest.mark.parametrize("place", [0, 0.5])
def test_a_damaged_cache_is_prepared_again(make, said, place):
    whole = list(prepared(make()).batches("val"))
    folder = make().cache_folder()
    for file in sorted(folder.iterdir()):
        flip(file, place)
        assert_same(list(prepared(make()).batches("val")), whole)
        # A digit of a checksum is damaged as if it were that file
        name = "" if file.suffix == ".json" else f"{file.name} is damaged; "
        assert any(f"{name}the data is prepared again" in line for line in said)
        said.clear()
    (folder / file.name).unlink()
    assert_same(list(prepared(make()).batches("val")), whole)


@pytest.mark.parametrize(
    ("kind", "path", "dataset"),
    [
        (ImageData, "photos.csv", "folder"),  # whatever its name
        (ImageData, "a.parquet", "csv"),
        (Digits, "elsewhere", None),
        (Digits, ".", "folder"),
    ],
)
def test_a_path_tells_what_is_read(kind, path, dataset):
    for folder in ("train", "photos.csv"):
        Path(folder).mkdir()
    assert kind(path=path).dataset == dataset


def test_a_source_is_needed():
    for dataset, message in (
        ("csv", "data.path: it is not set"),
        (None, "data.dataset: it is not set; use --data.dataset csv --data.path FILE"),
    ):
        assert refusal(TextData, dataset).startswith(message)
