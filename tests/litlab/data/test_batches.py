"""`batches`, for loops of one's own: those that a Trainer's model gets. And `for_data`, for models in Python."""

import pytest
import torch
from auks.images import MNASNet, SmallCNN

from litlab.data import Augment, ImageData, TextData
from litlab.tasks import Classifier
from tests.litlab.data.conftest import Recorder


@pytest.fixture(params=["images", "texts"])
def make(request, tmp_path):
    """Makes the data, anew at each call."""
    path = str(request.getfixturevalue(request.param))
    common = {"seed": 3, "cache_dir": str(tmp_path)}
    return {
        "images": lambda: ImageData(path=path, batch_size=30, augment=Augment(crop=2, flip="random"), **common),
        "texts": lambda: TextData(path=path, batch_size=16, max_tokens=8, long_texts="crop", **common),
    }[request.param]


def flat(batch):
    """The tensors of a batch by name."""
    if isinstance(batch, torch.Tensor):
        return {"": batch}
    items = batch.items() if isinstance(batch, dict) else enumerate(batch)
    return {f"{key}.{name}": value for key, part in items for name, value in flat(part).items()}


def same(ours, theirs):
    ours, theirs = [[flat(batch) for batch in batches] for batches in (ours, theirs)]
    return len(ours) == len(theirs) and all(
        one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)
        for one, other in zip(ours, theirs, strict=True)
    )


def test_they_are_the_batches_of_a_trainer(make, make_trainer):
    model, data = Recorder(), make()
    trainer = make_trainer(max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    alone = make()  # which nothing was prepared for
    together = list(zip(alone.batches("train", 0), alone.batches("train", 1), strict=True))  # each has its own epoch
    for epoch in (0, 1):
        assert same([batches[epoch] for batches in together], model.seen["train", epoch])
    assert same(data.batches("val", epoch=1), model.seen["val", 0])
    assert same(data.batches("test"), model.seen["test", 2])
    assert not same(alone.batches("train", 0), model.seen["train", 1])
    assert {value.device.type for value in flat(next(alone.batches("val", device="meta"))).values()} == {"meta"}


def test_a_model_for_data(images):
    data = ImageData(path=str(images))
    model = Classifier.for_data(MNASNet(), data, label_smoothing=0.1, num_classes=None)
    assert (model.hparams["num_classes"], model.hparams["image_shape"]) == (10, (3, 32, 32))
    assert model.label_smoothing == 0.1
    assert SmallCNN.for_data(data, width=16).network[0].out_channels == 16
    assert SmallCNN.for_data(data, num_classes=12).network[-1].out_features == 12  # what is set counts
