"""ImageData as a whole: through a trainer, as a run uses it."""

import shutil

import pandas as pd
import pytest
import torch

from litlab.data import Augment
from litlab.errors import UserError
from tests.litlab.data.conftest import Recorder, prepared, refusal
from tests.litlab.data.images.conftest import pixels, write_image

ALL = Augment(crop=2, flip="random", cutout=3)


def test_a_run(make, make_trainer, pets):
    """Images are normalised by those to train on, which alone are augmented."""
    plain, changed = ((make(pets, augment=augment), Recorder()) for augment in (Augment(), ALL))
    for data, model in (plain, changed):
        trainer = make_trainer(max_epochs=2)
        trainer.fit(model, data)
        trainer.test(model, data, verbose=False)
    data, model = plain
    assert data.description == f"folder {pets}: 27 train / 3 val / 6 test images of 3 x 8 x 6, 2 classes"
    assert [len(images) for images, _ in model.seen["train", 0]] == [4] * 6  # the incomplete batch is dropped
    assert model.images("train").dtype == torch.float32
    assert model.images("train").is_contiguous()
    assert not model.images("train", 0).equal(model.images("train", 1))
    assert model.labels("train").equal(changed[1].labels("train"))
    assert not model.images("train").equal(changed[1].images("train"))
    for stage, epoch, counts in (("val", 0, [2, 1]), ("test", 2, [4, 2])):
        assert torch.bincount(model.labels(stage, epoch)).tolist() == counts
        assert model.images(stage, epoch).equal(changed[1].images(stage, epoch))

    images = next(make(pets, batch_size=27).batches("train"))[0].double()
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std((0, 2, 3), correction=0), torch.ones(3).double(), atol=1e-5, rtol=0)
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.metadata.mean, data.metadata.std))
    torch.testing.assert_close(model.images("test", 2)[0], (pixels(pets / "test/cat/00.png") / 255 - mean) / std)


def test_the_nearest_class_mean_is_what_it_says(make, tmp_path):
    for split, count in (("train", 20), ("test", 10)):
        for name, value in (("dark", 60), ("light", 180)):
            for number in range(count):
                write_image(tmp_path / "set" / split / name / f"{number}.png", value=value + number)
    write_image(tmp_path / "set/test/light/wrong.png", value=80)
    data = prepared(make(tmp_path / "set"))
    assert data.baselines()["nearest class mean"]["test/acc"] == pytest.approx(20 / 21)


@pytest.mark.parametrize("normalize", ["imagenet", [[0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]])
def test_other_normalisations(make, pets, normalize):
    data = make(pets, normalize=normalize)
    image = next(data.batches("test"))[0][0]
    colours = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]] if normalize == "imagenet" else normalize
    mean, std = torch.tensor(colours)[:, :, None, None]
    torch.testing.assert_close(image, (pixels(pets / "test/cat/00.png") / 255 - mean) / std)
    assert data.serving().encode(pixels(pets / "test/cat/00.png")[None])[0].equal(image)


def test_training_images_can_be_evaluated(make, pets):
    """They are stored with a border, which must not show."""
    data, plain = prepared(make(pets, augment=Augment(crop=2)), "fit"), prepared(make(pets), "fit")
    assert data.train_dataloader().dataset.images.shape == (27, 3, 12, 10)
    first, second = (each.transform(each.samples("train")[torch.tensor([0])], None)[0] for each in (data, plain))
    assert first.equal(second)


def test_large_sets_stay_in_the_file(make, pets, monkeypatch):
    """Where memory is short, batches come from the mapped file and get their border one by one: the same images."""
    images = []
    for is_large in (False, True):
        if is_large:
            monkeypatch.setattr("psutil.virtual_memory", lambda: type("memory", (), {"available": 0}))
        data = make(pets, augment=Augment(crop=2, flip="random"))
        images.append(torch.cat([batch for split in ("train", "val") for batch, _ in data.batches(split)]))
        assert (data.train_dataloader().dataset.images.shape == (27, 3, 12, 10)) != is_large
    assert images[0].equal(images[1])


def test_splits(make, make_trainer, pets):
    write_image(pets / "val/dog/a.png")
    assert prepared(make(pets)).sizes == {"train": 30, "val": 1, "test": 6}
    data = prepared(make(pets, val_fraction=0.0, fold="0/3"))
    assert data.sizes == {"train": 20, "val": 1, "test": 10}, "the test split that is there is left out"
    shutil.rmtree(pets / "val")
    seen = []
    for fold in ("0/3", "1/3", "2/3"):
        data = prepared(make(pets, fold=fold))
        assert data.sizes == {"train": 17, "val": 3, "test": 10}
        seen += [tuple(image.flatten().tolist()) for image in data.samples("test")[torch.arange(10)]["image"]]
    assert len(set(seen)) == 30, "each image is tested once"

    data, model = make(pets, val_fraction=0.0), Recorder()
    make_trainer().fit(model, data)
    assert {stage for stage, _ in model.seen} == {"train"}
    with pytest.raises(UserError, match=r"^data: there are no val images; add some"):
        make_trainer().validate(model, data)


def test_each_draw_of_a_rare_image_has_its_own_augmentation(make, tmp_path):
    for name, count in (("many", 12), ("some", 4), ("one", 1)):
        for number in range(count):
            write_image(tmp_path / "uneven/train" / name / f"{number}.png", seed=number)
    data = make(tmp_path / "uneven", val_fraction=0.0, batch_size=6, balance="even", augment=Augment(crop=4))
    batches = [batch for epoch in range(6) for batch in data.batches("train", epoch)]
    labels = torch.cat([labels for _, labels in batches])
    assert torch.bincount(labels).tolist() == pytest.approx([24, 24, 24], abs=5)
    rare = torch.cat([images for images, _ in batches])[labels == 1]
    assert len({tuple(image.flatten().tolist()) for image in rare}) > 15, "one image, in many ways"


# ---- the checkpoint, and prediction


def test_predicting_from_a_checkpoint_alone(make, make_trainer, pets, tmp_path):
    data, model = make(pets, augment=Augment(crop=1)), Recorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    state = torch.load(tmp_path / "model.ckpt", weights_only=True)["ImageData"]
    assert (state["class_names"], state["image_shape"], state["generated"]) == (["cat", "dog"], (3, 8, 6), False)

    # Elsewhere, with no training images at hand.
    photos = tmp_path / "photos"
    write_image(photos / "b" / "2.png", size=(16, 12), value=255)
    write_image(photos / "1.JPG", mode="L", value=0)
    data = make(tmp_path / "gone", batch_size=1)
    data.predict_input = str(photos)
    outputs = make_trainer().predict(model, data, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
    mean, std = (torch.tensor(state[key])[:, None, None] for key in ("mean", "std"))
    images = model.images("predict", model.current_epoch)
    torch.testing.assert_close(images, torch.stack([((value - mean) / std).expand(3, 8, 6) for value in (0, 1)]))
    outputs[0] = torch.tensor([[0.25, 0.75]])
    data.write_predictions(outputs, str(tmp_path / "out/predictions.parquet"))
    assert pd.read_parquet(tmp_path / "out/predictions.parquet").to_dict("list") == {
        "file": [str(photos / "1.JPG"), str(photos / "b/2.png")], "prediction": ["dog", "cat"],
        "probability": [0.75, 0.5], "cat": [0.25, 0.5], "dog": [0.75, 0.5],
    }  # fmt: skip

    (photos / "c.png").write_bytes(b"rubbish")
    with pytest.raises(UserError, match=r"^data\.path: .*c\.png: not an image; replace or delete it$"):
        list(data.predict_dataloader())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("class_names", ["cat", "cow"], "trained with class_names ['cat', 'cow'], here it is ['cat', 'dog']; "),
        ("image_shape", (1, 9, 9), "trained with image_shape (1, 9, 9), here it is (3, 8, 6); "),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(make, pets, name, value, message):
    data = prepared(make(pets), "test")
    trained = {**data.state_dict(), name: value}
    assert message in refusal(data.load_state_dict, trained)
    fresh = make(pets)
    fresh.load_state_dict(trained)
    assert getattr(fresh, name) == value, "what the checkpoint says counts"
    assert message in refusal(prepared, fresh, "test")


def test_generated_data(make, monkeypatch):
    monkeypatch.setattr("litlab.data.images.generated.COUNTS", {"train": 40, "test": 20})
    data = prepared(make(dataset="generated", image_size=(9, 8), mode="L"))
    assert data.description == "GENERATED images: 36 train / 4 val / 20 test images of 1 x 9 x 8, 10 classes"
    assert data.state_dict()["generated"] is True
