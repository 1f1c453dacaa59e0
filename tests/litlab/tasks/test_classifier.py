"""Classifier: losses, mixup and cutmix, test-time augmentation, ensembles, and a subclass with a
loss of its own.
"""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.nn import functional as F

from litlab.nn.ensemble import Ensemble
from litlab.tasks import Classifier
from tests.conftest import BRIEF, ROOT
from tests.litlab.callbacks.tiny import TinyData, make_trainer
from tests.litlab.data.conftest import refusal

SHAPE = (3, 8, 8)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def classifier(**settings) -> Classifier:
    torch.manual_seed(0)
    return Classifier(**{"network": network, "num_classes": 3, "image_shape": SHAPE, **settings})


def note_inputs(model: Classifier) -> list[torch.Tensor]:
    """What the network gets from now on."""
    seen = []
    model.network[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    return seen


class Images(TinyData):
    num_classes, image_shape = 3, SHAPE

    def __init__(self):
        super().__init__(12, 5, 3)


ALL = Images().dataset.tensors
BATCH = ALL[0][:6], ALL[1][:6]


def fitted(model, tmp_path, **options) -> Trainer:
    trainer = make_trainer(tmp_path, **options)
    trainer.fit(model, Images())
    return trainer


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_images_have_the_loss_of_both_labels_by_their_share(kind):
    model, (images, labels) = classifier(**{kind: 5.0}, label_smoothing=0.1), BATCH
    seen = note_inputs(model)
    torch.manual_seed(4)
    loss, _, counted = model.training_outputs(BATCH)
    if kind == "mixup":
        torch.manual_seed(4)
        share = torch.distributions.Beta(torch.tensor([5.0]), torch.tensor([5.0])).sample(()).item()
        torch.testing.assert_close(seen[0], share * images + (1 - share) * images.roll(1, 0))
    else:
        share = (seen[0] == images).all(dim=1).flatten(1).float().mean(dim=1)[0].item()
        assert ((seen[0] == images) | (seen[0] == images.roll(1, 0))).all()
    assert 0.05 < share < 0.95
    # The larger share counts as correct
    assert torch.equal(counted, labels if share > 0.5 else labels.roll(1))
    logits = model.network(seen[0])
    parts = [
        F.cross_entropy(logits, part, label_smoothing=0.1) for part in (labels, labels.roll(1))
    ]
    torch.testing.assert_close(loss, share * parts[0] + (1 - share) * parts[1])
    model.eval().validation_step(BATCH, 0)
    assert torch.equal(seen[-1], images)


def test_class_weights_count_for_labels_and_shares():
    """Not as a mean by the weights of a batch, which would be the plain loss here."""
    model, logits = classifier(class_weights="even"), torch.randn(4, 3)
    model.class_weights.copy_(torch.tensor([0.5, 1.0, 4.0]))
    labels = torch.full((4,), 2)
    expected = 4 * F.cross_entropy(logits, labels)
    torch.testing.assert_close(model.training_loss(logits, labels), expected)
    torch.testing.assert_close(model.training_loss(logits, F.one_hot(labels, 3).float()), expected)


def test_views_are_averaged_in_evaluation_only():
    images, _ = BATCH
    model, plain = classifier(flip_tta=True, shift_tta=2), classifier()
    assert torch.equal(model(images), plain(images))
    model.eval(), plain.eval()
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    views = [images, padded[..., 4:, 4:], padded[..., :8, :8]]
    expected = sum(plain(view) + plain(view.flip(3)) for view in views) / 6
    torch.testing.assert_close(model(images), expected)
    torch.testing.assert_close(model.predict_step(images, 0), expected.softmax(dim=1))


def test_a_subclass_with_a_loss_of_its_own_as_documented(run, tmp_path, monkeypatch):
    """The class in docs/experiments.md, from Python and by the command line."""
    page = (ROOT / "docs/experiments.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [code] = [block for block in blocks if "SmoothClassifier" in block]
    Path("smooth.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    from smooth import SmoothClassifier  # pyright: ignore[reportMissingImports]

    still = partial(torch.optim.SGD, lr=1e-12)
    model = SmoothClassifier(
        network(), num_classes=3, smooth=0.5, optimizer=still, label_smoothing=0.5
    )
    logged, logits = fitted(model, tmp_path).callback_metrics, model(ALL[0])
    plain = F.cross_entropy(logits, ALL[1])
    smooth = F.cross_entropy(logits, ALL[1], label_smoothing=0.5)
    torch.testing.assert_close(logged["val/loss"], plain, rtol=1e-4, atol=0)
    expected = smooth + 0.5 * logits.square().mean()
    torch.testing.assert_close(logged["train/loss"], expected, rtol=1e-4, atol=0)

    line = """
        fit --model=SmoothClassifier --model.network=torch.nn.Linear --model.network.in_features=4
        --model.network.out_features=2 --model.smooth=0.2 --model.members=2
        --model.optimizer=torch.optim.SGD --data=tests.litlab.tasks.plain.PointsData
    """
    run(line, *BRIEF).check()  # the class of the data has the number of classes
    loaded = SmoothClassifier.load_from_checkpoint(
        "lightning_logs/default/version_0/checkpoints/last.ckpt", weights_only=True
    )
    assert loaded.smooth == 0.2
    assert not torch.equal(loaded.networks[0].weight, loaded.networks[1].weight)


@pytest.mark.parametrize("vectorize", [False, True])
def test_each_member_learns_by_the_gradient_of_its_own_loss(tmp_path, vectorize):
    settings = {"label_smoothing": 0.1, "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9)}
    several = classifier(members=3, vectorize=vectorize, **settings)
    starts = [
        {name: value.clone() for name, value in part.state_dict().items()}
        for part in several.networks
    ]
    assert not torch.equal(starts[0]["0.weight"], starts[1]["0.weight"])
    logged = fitted(several, tmp_path, max_epochs=2).callback_metrics
    losses = []
    for start, member in zip(starts, several.networks, strict=True):
        alone = classifier(**settings)
        alone.network.load_state_dict(start)
        losses.append(fitted(alone, tmp_path, max_epochs=2).callback_metrics["train/loss"].item())
        for name, value in alone.network.state_dict().items():
            assert not torch.equal(value, start[name])
            torch.testing.assert_close(member.state_dict()[name], value, rtol=1e-3, atol=1e-5)
    assert logged["train/loss"].item() == pytest.approx(sum(losses) / 3, rel=1e-3)


def test_predictions_of_an_ensemble_are_the_mean_of_probabilities():
    model = classifier(members=3).eval()
    expected = torch.stack([part(BATCH[0]).softmax(dim=1) for part in model.networks]).mean(dim=0)
    torch.testing.assert_close(model.predict_step(BATCH[0], 0), expected)
    torch.testing.assert_close(model.test_step(BATCH, 0)["logits"].exp(), expected)
    assert model.expected_loss(BATCH) == pytest.approx(3 * torch.tensor(3.0).log().item())

    # Each draws its own dropout
    both = Ensemble(
        [nn.Sequential(nn.LayerNorm(64), nn.Dropout(0.5)) for _ in range(2)], vectorize=True
    )
    first, second = both(torch.arange(64.0)[None])
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"network": network(), "members": 2},
            "model.members: all have the same weights and would learn the same",
        ),
        (
            {"image_shape": [3, 9, 9]},
            "model.image_shape: [3, 9, 9] differs from the data's (3, 8, 8); leave it",
        ),
    ],
)
def test_refusals(tmp_path, settings, says):
    assert says in refusal(lambda: fitted(classifier(**settings), tmp_path))
