"""`batches`, for loops of one's own: those that a Trainer's model gets. And `for_data`, for models in Python."""

from functools import partial

import pytest
from auks.images import MNASNet, SmallCNN
from torch.testing import assert_close

from litlab.data import Augment, ImageData, TextData
from litlab.tasks import Classifier
from tests.litlab.data.conftest import Recorder

assert_same = partial(assert_close, rtol=0, atol=0)


@pytest.fixture(params=["images", "texts"])
def make(request, tmp_path):
    """Makes the data, anew at each call."""
    path = str(request.getfixturevalue(request.param))
    common = {"seed": 3, "cache_dir": str(tmp_path)}
    return {
        "images": lambda: ImageData(path=path, batch_size=30, augment=Augment(crop=2, flip="random"), **common),
        "texts": lambda: TextData(path=path, batch_size=16, max_tokens=8, long_texts="crop", **common),
    }[request.param]


def test_they_are_the_batches_of_a_trainer(make, make_trainer):
    model, data = Recorder(), make()
    trainer = make_trainer(max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    alone = make()  # which nothing was prepared for
    together = list(zip(alone.batches("train", 0), alone.batches("train", 1), strict=True))  # each has its own epoch
    for epoch in (0, 1):
        assert_same([batches[epoch] for batches in together], model.seen["train", epoch])
    assert_same(list(data.batches("val", epoch=1)), model.seen["val", 0])
    assert_same(list(data.batches("test")), model.seen["test", 2])
    with pytest.raises(AssertionError):
        assert_same(model.seen["train", 0], model.seen["train", 1])
    assert next(alone.batches("val", device="meta"))[1].is_meta


def test_a_model_for_data(images):
    data = ImageData(path=str(images))
    model = Classifier.for_data(MNASNet(), data, label_smoothing=0.1, num_classes=None)
    assert (model.hparams["num_classes"], model.hparams["image_shape"]) == (10, (3, 32, 32))
    assert model.label_smoothing == 0.1
    assert SmallCNN.for_data(data, num_classes=12).network[-1].out_features == 12  # what is set counts
