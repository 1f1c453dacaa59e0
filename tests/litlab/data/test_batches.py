"""`batches`, for loops of one's own: those that a Trainer's model gets. And `for_data`, for models in Python."""

import pytest
import torch
from auks.images import MNASNet, SmallCNN
from auks.series import SmallForecaster
from lightning.pytorch import LightningModule, Trainer

from litlab.data import ImageData, SeriesData, TextData
from litlab.errors import UserError
from litlab.tasks import Classifier


class Keeps(LightningModule):
    """Keeps each batch that it gets, by stage and epoch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.seen = {}

    def keep(self, split, batch):
        self.seen.setdefault((split, self.current_epoch), []).append(batch)

    def training_step(self, batch, batch_idx):
        self.keep("train", batch)
        return self.weight * 1

    def validation_step(self, batch, batch_idx):
        self.keep("val", batch)

    def test_step(self, batch, batch_idx):
        self.keep("test", batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture(params=["images", "texts", "series"])
def make(request, tmp_path):
    """Makes the data, anew at each call."""
    path = str(request.getfixturevalue(request.param))
    common = {"seed": 3, "cache_dir": str(tmp_path)}
    return {
        "images": lambda: ImageData(
            "folder", path=path, batch_size=30, augment={"crop": 2, "flip": "random"}, **common
        ),
        "texts": lambda: TextData("csv", path=path, batch_size=16, max_tokens=8, long_texts="crop", **common),
        "series": lambda: SeriesData(
            "csv", path=path, context_length=24, horizon=8, batch_size=100, seed=3, covariates=["hour"]
        ),
    }[request.param]  # fmt: skip


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


def test_they_are_the_batches_of_a_trainer(make, tmp_path):
    model, data = Keeps(), make()
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    alone = make()  # which nothing was prepared for
    for source in (alone, data):
        for epoch in (1, 0):
            assert same(source.batches("train", epoch), model.seen["train", epoch])
        assert same(source.batches("val"), model.seen["val", 0])
        assert same(source.batches("val", epoch=1), model.seen["val", 0])
        assert same(source.batches("test"), model.seen["test", 2])
    assert not same(alone.batches("train", 0), model.seen["train", 1])


def test_loops_side_by_side_have_their_own_epochs_and_stages(images, tmp_path):
    data = ImageData("folder", path=str(images), batch_size=30, augment={"crop": 2}, cache_dir=str(tmp_path))
    loops = [("train", 0), ("train", 1), ("val", 0)]
    together = list(zip(*(data.batches(split, epoch) for split, epoch in loops), strict=False))
    for number, (split, epoch) in enumerate(loops):
        assert same([batches[number] for batches in together], list(data.batches(split, epoch))[: len(together)])


def test_batches_go_to_a_device(images, tmp_path):
    data = ImageData("folder", path=str(images), cache_dir=str(tmp_path))
    images, labels = next(data.batches("val", device="meta"))
    assert (images.device.type, labels.device.type) == ("meta", "meta")


@pytest.mark.parametrize(
    ("split", "says"),
    [("validation", r"^split: 'validation' is not valid; use train, val, test$"), ("val", r"data\.val_fraction: 0")],
)  # fmt: skip
def test_splits_that_are_not_there(texts, tmp_path, split, says):
    data = TextData("csv", path=str(texts), val_fraction=0.0, cache_dir=str(tmp_path))
    with pytest.raises(UserError, match=says):
        next(data.batches(split))


def test_a_model_for_data(images, series):
    data = ImageData("folder", path=str(images))
    model = Classifier.for_data(MNASNet(), data, label_smoothing=0.1, num_classes=None)
    assert (model.hparams["num_classes"], model.hparams["image_shape"]) == (10, (3, 32, 32))
    assert model.label_smoothing == 0.1
    assert SmallCNN.for_data(data, width=16).network[0].out_channels == 16
    assert SmallCNN.for_data(data, num_classes=12).network[-1].out_features == 12  # what is set counts
    hours = SeriesData("csv", path=str(series), context_length=24, horizon=8)
    assert SmallForecaster.for_data(hours)(torch.zeros(1, 24, 2)).shape == (1, 8, 2, 1)
