"""ImageData as a whole: through a trainer, as a run uses it."""

import pandas as pd
import pytest
import torch

from litlab.data import Augment
from tests.litlab.data.conftest import Recorder, prepared, refusal
from tests.litlab.data.images.conftest import pixels, write_image


def test_a_run(make, make_trainer, pets):
    """Images are normalised by those to train on, which alone are augmented."""
    model, other = Recorder(), Recorder()
    for each, augment in ((other, Augment(crop=2, flip="random", cutout=3)), (model, Augment())):
        data, trainer = make(pets, augment=augment), make_trainer(max_epochs=2)
        trainer.fit(each, data)
        trainer.test(each, data, verbose=False)
    assert (
        data.description
        == f"folder {pets}: 27 train / 3 val / 6 test images of 3 x 8 x 6, 2 classes"
    )
    # The incomplete batch is dropped
    assert [len(images) for images, _ in model.seen["train", 0]] == [4] * 6
    assert not model.images("train", 0).equal(model.images("train", 1))
    assert model.labels("train").equal(other.labels("train"))
    assert not model.images("train").equal(other.images("train"))
    for stage, epoch, counts in (("val", 0, [2, 1]), ("test", 2, [4, 2])):
        assert torch.bincount(model.labels(stage, epoch)).tolist() == counts
        assert model.images(stage, epoch).equal(other.images(stage, epoch))


def test_the_nearest_class_mean_is_what_it_says(make, tmp_path):
    for split in ("train", "test"):
        for name, value in (("dark", 60), ("light", 180)):
            for number in range(10):
                write_image(tmp_path / "set" / split / name / f"{number}.png", value=value + number)
    write_image(tmp_path / "set/test/light/wrong.png", value=80)
    assert prepared(make(tmp_path / "set")).baselines()["nearest class mean"][
        "test/acc"
    ] == pytest.approx(20 / 21)


@pytest.mark.parametrize("normalize", ["data", "imagenet", [[0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]])
def test_normalisations(make, pets, normalize):
    data = make(pets, normalize=normalize)
    image, raw = next(data.batches("test"))[0][0], pixels(pets / "test/cat/00.png")
    train = data.samples("train").images / 255
    colours = {
        "imagenet": [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]],
        "data": torch.stack([train.mean((0, 2, 3)), train.std((0, 2, 3), correction=0)]).tolist(),
    }
    mean, std = torch.tensor(colours.get(str(normalize), normalize))[:, :, None, None]
    torch.testing.assert_close(image, (raw / 255 - mean) / std)
    assert data.serving().encode(raw[None])[0].equal(image)


def test_large_sets_stay_in_the_file(make, pets, monkeypatch):
    """Where memory is short, batches come from the mapped file and get their border one by one: the
    same images.
    """
    kept, read = (
        prepared(make(pets, augment=Augment(crop=2, flip="random")), "fit") for _ in range(2)
    )
    assert kept.train_dataloader().dataset.images.shape == (27, 3, 12, 10)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("memory", (), {"available": 0}))
    assert read.train_dataloader().dataset.images.shape == (36, 3, 8, 6)
    for split in ("train", "val"):
        for (images, _), (others, _) in zip(kept.batches(split), read.batches(split), strict=True):
            assert images.equal(others)
    # The border does not show where training images are evaluated
    first, second = (
        each.transform(each.samples("train")[torch.tensor([0])], None)[0] for each in (kept, read)
    )
    assert first.equal(second)


def test_splits(make, pets):
    write_image(pets / "val/dog/a.png")
    assert prepared(make(pets)).sizes == {"train": 30, "val": 1, "test": 6}
    data = make(pets, val_fraction=0.0, fold="0/3")
    assert prepared(data).sizes == {"train": 20, "val": 1, "test": 10}, (
        "the test split that is there is left out"
    )
    data = make(pets, val_fraction=0.0)
    (pets / "val/dog/a.png").unlink()
    assert refusal(prepared, data, "validate").startswith("data: there are no val images; add some")


def test_predicting_from_a_checkpoint_alone(make, make_trainer, pets, tmp_path):
    data, model = make(pets, augment=Augment(crop=1)), Recorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")

    # Elsewhere, with no training images at hand.
    photos = tmp_path / "photos"
    write_image(photos / "b" / "2.png", size=(16, 12), value=255)
    write_image(photos / "1.JPG", mode="L", value=0)
    write_image(photos / ".hidden.png")
    other = make(tmp_path / "gone", batch_size=1)
    other.predict_input = str(photos)
    outputs = make_trainer().predict(
        model, other, ckpt_path=tmp_path / "model.ckpt", weights_only=True
    )
    mean, std = (torch.tensor(colours)[:, None, None] for colours in (data.mean, data.std))
    images = model.images("predict", model.current_epoch)
    torch.testing.assert_close(
        images, torch.stack([((value - mean) / std).expand(3, 8, 6) for value in (0, 1)])
    )
    outputs[0] = torch.tensor([[0.25, 0.75]])
    other.write_predictions(outputs, str(tmp_path / "out/predictions.parquet"))
    assert pd.read_parquet(tmp_path / "out/predictions.parquet").to_dict("list") == {
        "file": [str(photos / "1.JPG"), str(photos / "b/2.png")], "prediction": ["dog", "cat"],
        "probability": [0.75, 0.5], "cat": [0.25, 0.5], "dog": [0.75, 0.5],
    }  # fmt: skip

    assert len(other.open_input(str(photos / "1.JPG"))) == 1
    assert "there are no images in it" in refusal(other.open_input, str(tmp_path / "out"))
    (photos / "c.png").write_bytes(b"rubbish")
    assert refusal(lambda: list(other.predict_dataloader())).endswith(
        "c.png: not an image; replace or delete it"
    )
