"""Images that are decoded whenever they come into a batch."""

import shutil

import pytest
import torch

from litlab.data import Augment, ImageData
from litlab.errors import UserError
from tests.litlab.conftest import CONFIGS


def batches(data, split):
    return [batch for epoch in range(2) for batch in data.batches(split, epoch)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_decoded_images(images, tmp_path, workers):
    augment = Augment(crop=2, flip="random")
    kept = ImageData("folder", str(images), batch_size=30, augment=augment, cache_dir=str(tmp_path / "cache"))
    read = ImageData(
        "folder", str(images), batch_size=30, augment=augment, cache_dir=str(tmp_path / "none"), cache="none",
        num_workers=workers,
    )  # fmt: skip
    for split in ("train", "val", "test"):
        for (one, labels), (other, same) in zip(batches(kept, split), batches(read, split), strict=True):
            assert torch.equal(labels, same)
            torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    assert kept.metadata == read.metadata
    assert [path.name for path in (tmp_path / "none").iterdir()] == [".lock"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_ends_the_run_in_one_line(run, images, tmp_path, workers):
    shutil.copytree(images, tmp_path / "damaged")
    file = tmp_path / "damaged/train/class_3/7.png"
    file.write_bytes(file.read_bytes()[:60])
    done = run(
        "fit", "--config", CONFIGS / "images.yaml", "--data.dataset=folder", f"--data.path={tmp_path / 'damaged'}",
        "--data.cache=none", f"--data.num_workers={workers}", "--trainer.accelerator=cpu", "--trainer.max_epochs=1",
    )  # fmt: skip
    assert done.code == 2, done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {file}: unreadable image (")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("dataset", "settings", "line"),
    [
        ("generated", {}, "data.cache: none is not valid; it is for images of your own, in files; leave it out"),
        ("folder", {"bad_rows": "drop"}, "data.bad_rows: drop is not valid; with data.cache none damaged images are"),
    ],
)
def test_what_goes_with_the_cache_alone(images, dataset, settings, line):
    with pytest.raises(UserError) as error:
        ImageData(dataset, str(images), cache="none", **settings)
    assert str(error.value).startswith(line)
