"""Mixup, cutmix and test-time augmentation of a Classifier of images."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from torchmetrics.classification import MulticlassAUROC

from litlab.errors import UserError
from litlab.nn.image_batches import views
from litlab.tasks import Classifier
from tests.litlab.checkpointing.in_process import Data, Draws, fit

SHAPE = (3, 8, 8)


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def classifier(**settings) -> Classifier:
    torch.manual_seed(0)
    return Classifier(network(), num_classes=3, image_shape=SHAPE, **settings)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, *SHAPE, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mixup_is_the_loss_of_both_labels_by_their_share(batch, smoothing):
    model, (images, labels) = classifier(mixup=0.4, label_smoothing=smoothing), batch
    torch.manual_seed(2)
    loss, logits, counted = model.outcome(images, labels, "train")
    torch.manual_seed(2)
    share = torch.distributions.Beta(torch.tensor([0.4]), torch.tensor([0.4])).sample(()).item()
    assert 0.01 < share < 0.99
    expected = model.network(share * images + (1 - share) * images.roll(1, 0))
    torch.testing.assert_close(logits, expected)
    parts = [F.cross_entropy(expected, part, label_smoothing=smoothing) for part in (labels, labels.roll(1))]
    torch.testing.assert_close(loss, share * parts[0] + (1 - share) * parts[1])
    assert torch.equal(counted, labels if share > 0.5 else labels.roll(1))


def test_cutmix_is_the_loss_of_both_labels_by_their_area(batch):
    model, (images, labels) = classifier(cutmix=1.0), batch
    torch.manual_seed(4)
    seen = []
    model.network[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    loss, logits, counted = model.outcome(images, labels, "train")
    own = (seen[0] == images).all(dim=1).flatten(1).float().mean(dim=1)
    share = own[0].item()
    assert 0.1 < share < 0.9
    assert (own == share).all()
    assert ((seen[0] == images) | (seen[0] == images.roll(1, 0))).all()
    parts = [F.cross_entropy(logits, part) for part in (labels, labels.roll(1))]
    torch.testing.assert_close(loss, share * parts[0] + (1 - share) * parts[1])
    assert torch.equal(counted, labels if share > 0.5 else labels.roll(1))


def test_evaluation_sees_the_images_as_they_are(batch):
    plain, mixing = classifier().eval(), classifier(mixup=0.4, cutmix=1.0).eval()
    for stage in ("val", "test"):
        for one, other in zip(plain.outcome(*batch, stage), mixing.outcome(*batch, stage), strict=True):
            assert torch.equal(one, other)
    assert plain.state_dict().keys() == mixing.state_dict().keys()


def test_with_both_each_batch_gets_one_of_the_two(batch):
    model, (images, labels) = classifier(mixup=1.0, cutmix=1.0), batch
    seen = []
    model.network[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for _ in range(40):
        model.outcome(images, labels, "train")
    cut = [((mixed == images) | (mixed == images.roll(1, 0))).all().item() for mixed in seen]
    assert 10 < sum(cut) < 30


# Resumption within an epoch


class Images(Data):
    def __init__(self) -> None:
        super().__init__()
        inputs = torch.randn(20, *SHAPE, generator=torch.Generator().manual_seed(0))
        self.dataset = TensorDataset(inputs, torch.arange(20) % 3)


class Mixing(Draws):
    def __init__(self, stop=None) -> None:
        Classifier.__init__(
            self, network(), num_classes=3, image_shape=SHAPE, mixup=0.4, cutmix=1.0,
            metrics={"auroc": MulticlassAUROC(3)}, optimizer=partial(torch.optim.Adam, lr=0.01),
        )  # fmt: skip
        self.stop = stop
        self.drawn, self.rates, self.ended = {}, {}, []


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists")
def test_a_run_that_is_resumed_within_an_epoch_mixes_as_if_it_had_not_stopped(tmp_path: Path):
    whole, trainer = fit(tmp_path / "whole", module=Mixing, data=Images)
    fit(tmp_path / "parts", stop=("batch", 1, 2), module=Mixing, data=Images)
    resumed, again = fit(tmp_path / "parts", resume=True, module=Mixing, data=Images)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    for one, other in zip(*(t.optimizers[0].state_dict()["state"].values() for t in (trainer, again)), strict=True):
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    for name in ("train/loss", "train/acc", "train/f1", "train/auroc"):
        assert trainer.callback_metrics[name] == again.callback_metrics[name], name


# Test-time augmentation


def test_mirror_images_are_averaged_in_evaluation_only(batch):
    images, _ = batch
    model, plain = classifier(flip_tta=True), classifier()
    assert torch.equal(model(images), plain(images))
    model.eval(), plain.eval()
    # Not to the bit: a convolution can round otherwise in a batch of another size.
    torch.testing.assert_close(model(images), (plain(images) + plain(images.flip(3))) / 2)
    assert torch.equal(model.predict_step(images, 0), model(images).softmax(dim=1))
    model.network.compile(backend="eager")
    torch.testing.assert_close(model(images), (plain(images) + plain(images.flip(3))) / 2)


def test_shifts_are_averaged_with_the_image():
    images = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)
    seen = list(views(images, flip=True, shift=2))
    assert len(seen) == 6
    assert torch.equal(seen[0], images)
    assert torch.equal(seen[2][:, :, :6, :6], images[:, :, 2:, 2:])  # to the upper left
    assert torch.equal(seen[2][:, :, 6:, :6], images[:, :, [6, 5]][:, :, :, 2:])  # the border's reflection
    assert torch.equal(seen[4][:, :, 2:, 2:], images[:, :, :6, :6])  # to the lower right
    assert all(torch.equal(mirrored, view.flip(3)) for view, mirrored in zip(seen[::2], seen[1::2], strict=True))
    model, plain = classifier(flip_tta=True, shift_tta=2).eval(), classifier().eval()
    torch.testing.assert_close(model(images), torch.stack([plain(view) for view in seen]).mean(dim=0))


@pytest.mark.parametrize("name", ["mixup", "cutmix", "flip_tta", "shift_tta"])
def test_what_is_not_an_image_is_refused(name):
    with pytest.raises(UserError, match=rf"^model.{name}: it works on images, and the data has no image_shape \(model"):
        Classifier(nn.Linear(4, 3), num_classes=3, **{name: 1})


def test_a_shift_that_leaves_nothing_is_refused():
    with pytest.raises(UserError, match=r"model.shift_tta: 8 pixels are too many for images of 8 x 8 \(model.image"):
        classifier(shift_tta=8)
