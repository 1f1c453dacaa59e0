"""Classifier: losses, mixup and cutmix, test-time augmentation, and a subclass with a loss of its own."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from litlab.errors import UserError
from litlab.tasks import Classifier
from tests.conftest import ROOT

SHAPE = (3, 8, 8)
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


def classifier(**settings) -> Classifier:
    torch.manual_seed(0)
    return Classifier(network(), num_classes=3, **{"image_shape": SHAPE, **settings})


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, *SHAPE, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2])


class Images(LightningDataModule):
    num_classes, image_shape = 3, SHAPE

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(2)
        return DataLoader(TensorDataset(torch.randn(12, *SHAPE, generator=generator), torch.arange(12) % 3), 5)

    val_dataloader = train_dataloader


def fitted(model, tmp_path, data=None) -> Trainer:
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(model, data or Images())
    return trainer


def test_smoothing_is_for_training_only(tmp_path):
    still = partial(torch.optim.SGD, lr=1e-12)
    model = Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), num_classes=3, label_smoothing=0.5, optimizer=still
    )
    trainer = fitted(model, tmp_path)
    images, labels = (torch.stack(part) for part in zip(*Images().train_dataloader().dataset, strict=True))
    for stage, smoothing in (("train", 0.5), ("val", 0.0)):
        loss = F.cross_entropy(model(images), labels, label_smoothing=smoothing).item()
        assert trainer.callback_metrics[f"{stage}/loss"].item() == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_images_have_the_loss_of_both_labels_by_their_share(batch, kind, smoothing):
    model, (images, labels) = classifier(**{kind: 5.0}, label_smoothing=smoothing), batch
    seen = []
    model.network[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torch.manual_seed(4)
    loss = model.batch_loss(batch)
    if kind == "mixup":
        torch.manual_seed(4)
        share = torch.distributions.Beta(torch.tensor([5.0]), torch.tensor([5.0])).sample(()).item()
        torch.testing.assert_close(seen[0], share * images + (1 - share) * images.roll(1, 0))
    else:
        share = (seen[0] == images).all(dim=1).flatten(1).float().mean(dim=1)[0].item()
        assert ((seen[0] == images) | (seen[0] == images.roll(1, 0))).all()
    assert 0.05 < share < 0.95
    logits = model.network(seen[0])
    parts = [F.cross_entropy(logits, part, label_smoothing=smoothing) for part in (labels, labels.roll(1))]
    torch.testing.assert_close(loss, share * parts[0] + (1 - share) * parts[1])


def test_with_both_each_batch_gets_one_of_the_two_in_training_alone(batch, tmp_path):
    model, (images, _) = classifier(mixup=1.0, cutmix=1.0), batch
    seen = []
    model.network[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for _ in range(40):
        model.batch_loss(batch)
    cut = [((mixed == images) | (mixed == images.roll(1, 0))).all().item() for mixed in seen]
    assert 10 < sum(cut) < 30
    model.eval().validation_step(batch, 0)
    assert torch.equal(seen[-1], images)


def test_class_weights_count_for_labels_and_shares(batch):
    model, logits, labels = classifier(class_weights="even"), torch.randn(6, 3), batch[1]
    model.class_weights.copy_(torch.tensor([0.5, 1.0, 4.0]))
    expected = (F.cross_entropy(logits, labels, reduction="none") * model.class_weights[labels]).mean()
    torch.testing.assert_close(model.training_loss(logits, labels), expected)
    torch.testing.assert_close(model.training_loss(logits, F.one_hot(labels, 3).float()), expected)


def test_views_are_averaged_in_evaluation_only(batch):
    images, _ = batch
    model, plain = classifier(flip_tta=True, shift_tta=2), classifier()
    assert torch.equal(model(images), plain(images))
    model.eval(), plain.eval()
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    views = [images, padded[..., 4:, 4:], padded[..., :8, :8]]
    expected = torch.stack([plain(view) for view in [*views, *(view.flip(3) for view in views)]]).mean(dim=0)
    torch.testing.assert_close(model(images), expected)
    torch.testing.assert_close(model.predict_step(images, 0), expected.softmax(dim=1))


def test_a_prediction_of_an_export_is_tested_like_the_models_own(batch):
    model = classifier().eval()
    own, exported = model.test_step(batch, 0), model.test_predictions(model.predict_step(batch[0], 0), batch[1])
    torch.testing.assert_close(own["loss"], exported["loss"])
    assert model.test_predictions(torch.eye(3), torch.tensor([0, 1, 1]))["loss"].isfinite()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_classes": None}, "model.num_classes: None is not valid; set it to 2"),
        ({"num_classes": 1}, "model.num_classes: 1 is not valid; set it to 2 or more"),
        (
            {"image_shape": None, "cutmix": 1.0},
            "model: mixup, cutmix, flip_tta and shift_tta are for images, and the data has no image_shape; leave",
        ),
    ],
)
def test_refusals(settings, says):
    with pytest.raises(UserError, match=says):
        Classifier(network(), **{"num_classes": 3, **settings})


def test_images_of_another_shape_are_refused(tmp_path):
    any_size = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    model = Classifier(any_size, num_classes=3, image_shape=[3, 9, 9])
    with pytest.raises(
        UserError, match=r"model.image_shape: \[3, 9, 9\] differs from the data's \(3, 8, 8\); leave it"
    ):
        fitted(model, tmp_path)


def test_a_subclass_with_a_loss_of_its_own_as_documented(run, tmp_path, monkeypatch):
    """The class in docs/experiments.md, from Python and by the command line."""
    page = (ROOT / "docs/experiments.md").read_text()
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "SmoothClassifier" in block]
    Path(tmp_path, "smooth.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    from smooth import SmoothClassifier  # pyright: ignore[reportMissingImports]

    model = SmoothClassifier.for_data(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), Images(), smooth=0.5)
    plain = Classifier(model.network, num_classes=3)
    images, labels = next(iter(Images().train_dataloader()))
    term = 0.5 * model.network(images).square().mean()
    torch.testing.assert_close(model.batch_loss((images, labels)), plain.batch_loss((images, labels)) + term)
    model.optimizer = partial(torch.optim.SGD, lr=1e-12)
    losses = []
    model.on_train_batch_end = lambda outputs, batch, index: losses.append((outputs["loss"].item(), len(batch[1])))
    logged = fitted(model, tmp_path).callback_metrics
    assert logged["train/loss"].item() == pytest.approx(sum(loss * size for loss, size in losses) / 12, rel=1e-5)
    assert logged["val/loss"] < logged["train/loss"] - 0.01

    network = "{class_path: torch.nn.Linear, init_args: {in_features: 4, out_features: 2}}"
    done = run(
        "fit", "--model=SmoothClassifier", f"--model.network={network}", "--model.smooth=0.2", "--model.members=2",
        "--model.optimizer=torch.optim.SGD", "--data=tests.litlab.tasks.plain.CountedPointsData",
        "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1",
    )  # fmt: skip
    assert done.code == 0, done.err
    loaded = SmoothClassifier.load_from_checkpoint(
        "lightning_logs/default/version_0/checkpoints/last.ckpt", weights_only=True
    )
    assert loaded.smooth == 0.2
