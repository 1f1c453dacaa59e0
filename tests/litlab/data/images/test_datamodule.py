"""ImageData as a whole: batches, prediction, targets."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import Augment
from tests.litlab.data.conftest import prepared, refusal, restore, write_and_read
from tests.litlab.data.images.conftest import make, pixels, write_image, write_images


def test_the_nearest_class_mean_is_what_it_says():
    for split in ("train", "test"):  # a is dark, b is light
        write_images(Path(split), 20, value=lambda number: 60 + 120 * (number % 2) + number)
    write_image(Path("test/b/wrong.png"), value=80)
    scores = prepared(make(".")).baselines()["nearest class mean"]
    assert scores["test/acc"] == pytest.approx(20 / 21)


@pytest.mark.parametrize("normalize", ["data", "imagenet"])
def test_normalisations(pets, normalize):
    data = make(pets, normalize=normalize)
    image, raw = next(data.batches("test"))[0][0], pixels(pets / "test/cat/00.png")
    train = data.samples("train").images / 255
    colours = {
        "imagenet": [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]],
        "data": torch.stack([train.mean((0, 2, 3)), train.std((0, 2, 3), correction=0)]).tolist(),
    }
    mean, std = torch.tensor(colours[normalize])[:, :, None, None]
    torch.testing.assert_close(image, (raw / 255 - mean) / std)
    assert data.serving().encode(raw[None])[0].equal(image)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augment": Augment(crop=6)}, "data.augment.crop: 6 must be less than the 6 pixels"),
        ({"augment": Augment(cutout=6)}, "data.augment.cutout: 6 must be less than the 6 pixels"),
        ({"normalize": [[0.5] * 3]}, "data.normalize: [[0.5, 0.5, 0.5]] is not valid; give two"),
        ({"normalize": [[0.5] * 3, [0.2, 0.0, 0.2]]}, "data.normalize: "),
        ({"normalize": []}, "data.normalize: [] is not valid"),
    ],
)
def test_settings_that_leave_nothing_of_an_image(pets, settings, message):
    assert refusal(prepared, make(pets, **settings)).startswith(message)


def test_large_sets_stay_in_the_file(pets, monkeypatch):
    """Where memory is short, batches come from the mapped file and get their border one by one: the
    same images.
    """
    kept, read = (
        prepared(make(pets, augment=Augment(crop=2, flip="random")), "fit") for _ in range(2)
    )
    assert kept.train_dataloader().dataset.images.shape == (27, 3, 12, 10)
    monkeypatch.setattr("litlab.data.images.datamodule.find_memory", lambda: (2**30, 0))
    assert read.train_dataloader().dataset.images.shape == (36, 3, 8, 6)
    for split in ("train", "val"):
        for (images, _), (others, _) in zip(kept.batches(split), read.batches(split), strict=True):
            assert images.equal(others)
    # The border does not show where training images are evaluated
    first, second = (
        each.transform(each.samples("train")[torch.tensor([0])], None)[0] for each in (kept, read)
    )
    assert first.equal(second)


def test_splits(pets):
    write_image(pets / "val/dog/a.png")
    data = make(pets, val_fraction=0.0, fold="0/3")  # the test split that is there is left out
    assert prepared(data).sizes == {"train": 20, "val": 1, "test": 10}
    data = make(pets, val_fraction=0.0)
    (pets / "val/dog/a.png").unlink()
    assert refusal(prepared, data, "validate").startswith("data: there are no val images; add some")


def test_predicting_from_a_checkpoint_alone(pets):
    """Elsewhere, with no training images at hand."""
    data, photos = make(pets, augment=Augment(crop=1), image_size=(8, 6)), Path("photos")
    write_image(photos / "b" / "2.png", size=(16, 12), value=255)
    write_image(photos / "1.JPG", mode="L", value=0)
    write_image(photos / ".hidden.png")
    later = restore(data, batch_size=1)
    later.predict_input = str(photos)
    images = [later.transform(batch, None) for batch in later.predict_dataloader()]
    mean, std = (torch.tensor(colours)[:, None, None] for colours in (data.mean, data.std))
    for image, value in zip(images, (0, 1), strict=True):
        torch.testing.assert_close(image[0], ((value - mean) / std).expand(3, 8, 6))
    outputs = [torch.tensor([[0.25, 0.75]]), torch.tensor([[0.5, 0.5]])]
    later.write_predictions(outputs, "out/predictions.parquet")
    assert pd.read_parquet("out/predictions.parquet").to_dict("list") == {
        "file": [str(photos / "1.JPG"), str(photos / "b/2.png")], "prediction": ["dog", "cat"],
        "probability": [0.75, 0.5], "cat": [0.25, 0.5], "dog": [0.75, 0.5],
    }  # fmt: skip

    assert "there are no images in it" in refusal(later.open_input, "out")
    (photos / "c.png").write_bytes(b"rubbish")
    assert "c.png: not an image" in refusal(lambda: list(later.predict_dataloader()))
    later.bad_rows = "drop"
    assert len(list(later.predict_dataloader())) == 2


def test_new_images_of_another_shape_are_fitted_if_it_is_set(pets):
    write_image(Path("new.png"), size=(9, 6))
    plain, fitted = (
        restore(make(pets), image_size=size).open_input("new.png") for size in (None, (8, 6))
    )
    first = torch.zeros(2, 1).long()
    assert fitted.take(*first).shape == (1, 3, 8, 6)
    assert "not 8 x 6: set data.image_size" in refusal(plain.take, *first)


# ---- targets other than a class, and what splits


@pytest.mark.parametrize(
    ("settings", "columns", "first", "output", "answer"),
    [
        (
            {"target": ["x", "y"]},
            {"x": range(20), "y": np.arange(20) / 8},
            [2.0, 0.25],
            [1.0, 0.0],
            {"predicted_x": "1.0", "predicted_y": "0.0"},
        ),
        (
            {"target": "tags", "label_separator": ","},
            {"tags": ["sun", "sea,sun", "", "sea"] * 5},
            [0.0, 1.0],
            [[1.0, 1.0], [0.0, 0.0]],  # a probability, and whether it counts
            {"prediction": "sea", "label_sea": "1", "label_sun": "0"},
        ),
    ],
)
def test_targets(settings, columns, first, output, answer):
    write_images(Path(), 20)
    files = sorted(Path().rglob("*.png"))
    pd.DataFrame({"file": files, **columns}).to_csv("table.csv", index=False)
    options = {"normalize": "imagenet", "cache": "none", "id_column": "file"}
    data = prepared(make("table.csv", **options, **settings))
    targets = torch.cat([part.targets for part in data.by_split.values()])
    assert len(targets) == 20
    assert first in targets.tolist()
    assert next(data.batches("test"))[1].dtype == targets.dtype
    assert data.baselines()
    # A table is an input, too, and what it says of the target does not matter
    Path("new.csv").write_text("file\na/004.png\n")
    data.open_input("new.csv")
    written = write_and_read(data, torch.tensor([output])).iloc[0].to_dict()
    assert {"file": "a/004.png", **answer}.items() <= written.items()
