"""What a checkpoint carries of the images, and what is predicted with it."""

import csv

import pytest
import torch

from litlab.data import Augment, ImageData
from litlab.errors import UserError
from tests.litlab.data.conftest import Recorder
from tests.litlab.data.images.conftest import folder_data, pixels, write_image


def test_checkpoint_carries_what_raw_images_need(make_data, make_trainer, image_folder, tmp_path):
    data, model = folder_data(make_data, image_folder, augment=Augment(crop=1)), Recorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    checkpoint = torch.load(tmp_path / "model.ckpt", weights_only=True)
    state = checkpoint["ImageData"]
    assert state["class_names"] == ["cat", "dog"]
    assert state["image_shape"] == (3, 8, 6)
    assert (state["mode"], state["resize"], state["generated"]) == ("RGB", "crop", False)
    assert len(state["mean"]) == len(state["std"]) == 3
    again = ImageData.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert again.augment == Augment(crop=1)
    assert dict(again.hparams) == dict(data.hparams)

    # Elsewhere, with no training images at hand.
    photos = tmp_path / "photos"
    write_image(photos / "b" / "2.png", size=(16, 12), value=255)
    write_image(photos / "1.JPG", mode="L", value=0)
    (photos / "notes.txt").write_text("no image")
    data = make_data(dataset="folder", path=str(tmp_path / "gone"), batch_size=1)
    data.predict_input = str(photos)
    outputs = make_trainer().predict(model, data, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
    mean, std = (torch.tensor(state[key])[:, None, None] for key in ("mean", "std"))
    images = model.images("predict", model.current_epoch)
    assert images.shape == (2, 3, 8, 6)
    torch.testing.assert_close(images[0], ((0 - mean) / std).expand(3, 8, 6))
    torch.testing.assert_close(images[1], ((1 - mean) / std).expand(3, 8, 6))

    outputs[0] = torch.tensor([[0.25, 0.75]])
    data.write_predictions(outputs, str(tmp_path / "out" / "predictions.csv"))
    with (tmp_path / "out" / "predictions.csv").open(newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["file", "prediction", "probability", "cat", "dog"],
            [str(photos / "1.JPG"), "dog", "0.750000", "0.250000", "0.750000"],
            [str(photos / "b" / "2.png"), "cat", "0.500000", "0.500000", "0.500000"],
        ]
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_facts_of_a_checkpoint_come_first(make_data, tmp_path):
    data = make_data(dataset="folder", path=str(tmp_path / "gone"))
    known = {"class_names": ["a", "b", "c"], "image_shape": (1, 5, 4), "mode": "L"}
    data.load_state_dict({**known, "mean": [0.5], "std": [0.2], "resize": "crop", "generated": False})
    assert (data.num_classes, data.image_shape) == (3, (1, 5, 4))


def test_the_checkpoints_normalisation_is_used(make_data, make_trainer, image_folder):
    data, model = folder_data(make_data, image_folder), Recorder()
    data.prepare_data()
    data.setup("test")
    state = {**data.state_dict(), "mean": [0.0] * 3, "std": [1 / 255] * 3}
    data.load_state_dict(state)
    make_trainer().test(model, data, verbose=False)
    assert model.images("test")[0].equal(pixels(image_folder / "test/cat/00.png").float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"class_names": ["cat", "cow", "dog", "hen"]},
            "data: the checkpoint was trained on 4 classes (cat, cow, dog, ...), the data has 2 classes (cat, dog); "
            "use data of the same classes",
        ),
        (
            {"image_shape": [1, 9, 9], "mode": "L"},
            "data: the checkpoint was trained on images of 1 x 9 x 9, the data has 3 x 8 x 6; "
            "add --data.image_size '[9, 9]' --data.mode L",
        ),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(make_data, image_folder, change, message):
    data = folder_data(make_data, image_folder)
    data.prepare_data()
    data.setup("test")
    with pytest.raises(UserError) as error:
        data.load_state_dict({**data.state_dict(), **change})
    assert str(error.value) == message


def test_predicting_needs_input_and_a_checkpoint(make_data, make_trainer, tmp_path):
    data = make_data(dataset="generated")
    with pytest.raises(UserError, match=r"nothing to predict; name a folder, a file or a pattern with --input$"):
        make_trainer().predict(Recorder(), data)
    data.predict_input = str(tmp_path)
    with pytest.raises(UserError, match=r"^predict: no checkpoint"):
        make_trainer().predict(Recorder(), data)
