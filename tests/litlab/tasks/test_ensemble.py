"""Ensembles: each member learns as if it were alone, at once or one after the other; the test measures them."""

import json

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from torch import nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassCalibrationError

from litlab.data import ImageData
from litlab.errors import UserError
from litlab.nn.ensemble import bootstrap_counts
from litlab.tasks import Classifier

SHAPE = (3, 32, 32)
QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False, "use_distributed_sampler": False,
}  # fmt: skip


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))


def data(images, tmp_path, **settings) -> ImageData:
    return ImageData("folder", str(images), batch_size=20, cache_dir=str(tmp_path / "cache"), **settings)


def trained(model: Classifier, images, tmp_path, **settings) -> Classifier:
    seed_everything(0, verbose=False)
    Trainer(max_epochs=2, **QUIET, **settings).fit(model, data(images, tmp_path))
    return model


def built(members: int, **settings) -> Classifier:
    torch.manual_seed(3)
    settings.setdefault("optimizer", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    return Classifier(small, members=members, num_classes=10, **settings)


@pytest.mark.filterwarnings("ignore:.*logging interval")
@pytest.mark.parametrize("vectorize", [False, True])
def test_each_member_learns_as_if_it_were_alone(images, tmp_path, vectorize):
    several = built(3, vectorize=vectorize, label_smoothing=0.1)
    starts = [{name: value.clone() for name, value in one.state_dict().items()} for one in several.networks]
    assert not torch.equal(starts[0]["0.weight"], starts[1]["0.weight"])
    clipped = {"gradient_clip_val": 0.3}  # lower than all norms, and those of the members differ
    trained(several, images, tmp_path, **clipped)
    for number, start in enumerate(starts):
        alone = built(1, label_smoothing=0.1)
        alone.network.load_state_dict(start)
        trained(alone, images, tmp_path, **clipped)
        for name, value in alone.network.state_dict().items():
            assert not torch.equal(value, start[name])
            torch.testing.assert_close(several.networks[number].state_dict()[name], value, rtol=2e-4, atol=2e-6)


def test_predictions_are_the_mean_of_probabilities():
    model = built(3, image_shape=SHAPE, flip_tta=True).eval()
    seen = torch.randn(5, *SHAPE)
    of_members = [((one(seen) + one(seen.flip(3))) / 2).softmax(dim=1) for one in model.networks]
    torch.testing.assert_close(model(seen).softmax(dim=2), torch.stack(of_members))
    expected = torch.stack(of_members).mean(dim=0)
    torch.testing.assert_close(model.predict_step(seen, 0), expected)
    labels = torch.arange(5)
    loss, logits, _ = model.outcome(seen, labels, "val")
    torch.testing.assert_close(logits.exp(), expected)
    torch.testing.assert_close(loss, F.nll_loss(expected.log(), labels))
    torch.testing.assert_close(model.test_step((seen, labels), 0)["logits"], logits)


def test_class_weights_and_mixed_labels_count_for_each_member():
    model = built(2, class_weights="even", vectorize=True)
    model.class_weights.copy_(torch.arange(10.0))
    seen, labels = torch.randn(6, *SHAPE), torch.arange(6)
    loss = model.outcome(seen, labels, "train")[0]
    losses = [F.cross_entropy(one(seen), labels, reduction="none") for one in model.networks]
    torch.testing.assert_close(loss, torch.stack([(own * labels).mean() for own in losses]).mean())
    shares = torch.rand(6, 10).softmax(dim=1)
    own = model._training_loss(model(seen), shares)
    weights = shares @ model.class_weights
    expected = [(F.cross_entropy(one(seen), shares, reduction="none") * weights).mean() for one in model.networks]
    torch.testing.assert_close(own, torch.stack(expected).mean())


@pytest.mark.filterwarnings("ignore:.*logging interval")
def test_a_bootstrapped_member_does_not_learn_from_what_it_has_not_drawn(images, tmp_path):
    counts = bootstrap_counts(2, 10_000, seed=5)
    assert counts.sum(dim=1).tolist() == [10_000, 10_000]
    assert (counts == 0).float().mean() == pytest.approx(1 / torch.e, abs=0.01)
    assert not torch.equal(counts[0], counts[1])

    seen: list[torch.Tensor] = []

    class Recorded(Classifier):
        def member_loss(self, losses):
            numbers = self.trainer.datamodule.batch_numbers
            seen.append(numbers)
            drawn = super().member_loss(losses)
            expected = (losses * self._counts[:, numbers]).mean()
            torch.testing.assert_close(drawn, expected)
            return drawn

    torch.manual_seed(3)
    model = Recorded(small, members=2, bootstrap=True, num_classes=10)
    module = data(images, tmp_path, seed=5, balance="even")
    Trainer(max_epochs=2, **QUIET).fit(model, module)
    size = module.sizes["train"]
    torch.testing.assert_close(model._counts, bootstrap_counts(2, size, seed=5))
    assert max(int(numbers.max()) for numbers in seen) < size, "a second draw has the number of the first"
    assert next(module.batches("train"))[0].shape[1:] == SHAPE  # without numbers, for one's own loops


MEMBERS = ["--model=Classifier", "--model.network=auks.images.MNASNet", "--model.members=2"]


def test_a_run_of_an_ensemble(fit_images, run, images, tmp_path):
    done = fit_images("fit", *MEMBERS, "--model.bootstrap=true", "--trainer.max_epochs=1")
    assert done.code == 0, done.err
    assert "ensemble: 2 x MNASNet, computed one after the other\n" in done.err
    folder = tmp_path / "lightning_logs/images/version_0"
    metrics = json.loads((folder / "metrics.json").read_text())["test"]
    assert set(metrics) >= {"test/acc", "test/ece", "test/member_loss", "test/member_acc", "test/member_ece"}

    model = Classifier.load_from_checkpoint(folder / "checkpoints/last.ckpt", weights_only=True).eval()
    first, second = model.networks
    assert not torch.equal(next(first.parameters()), next(second.parameters()))
    module = data(images, tmp_path)
    batches = list(module.batches("test"))
    labels = torch.cat([labels for _, labels in batches])
    with torch.inference_mode():
        outputs = [torch.cat([one(seen) for seen, _ in batches]).softmax(dim=1) for one in model.networks]
    joint = torch.stack(outputs).mean(dim=0)

    def calibration(probabilities: torch.Tensor) -> float:
        return MulticlassCalibrationError(10, n_bins=15)(probabilities, labels).item()

    assert metrics["test/acc"] == pytest.approx((joint.argmax(1) == labels).float().mean().item())
    assert metrics["test/ece"] == pytest.approx(calibration(joint), abs=1e-5)
    each = [(one.argmax(1) == labels).float().mean().item() for one in outputs]
    assert metrics["test/member_acc"] == pytest.approx(sum(each) / 2)
    assert metrics["test/member_ece"] == pytest.approx(sum(map(calibration, outputs)) / 2, abs=1e-5)
    losses = [F.nll_loss(one.log(), labels).item() for one in outputs]
    assert metrics["test/member_loss"] == pytest.approx(sum(losses) / 2, rel=1e-4)
    again = run("test", "--run", "images/version_0", "--trainer.accelerator=cpu")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model.members=1", "--model.bootstrap=true"], "model.bootstrap: there is one network; set model.members"),
        (["--model.members=1", "--model.vectorize=true"], "model.vectorize: there is one network; set model.members"),
        (
            ["--model.network=torchvision.models.resnet18", "--model.vectorize=true"],
            "model.vectorize: vmap can't take ResNet (BatchNorm2d changes its running statistics in place); leave it",
        ),
        (["--model.bootstrap=true", "--model.mixup=0.2"], "model.bootstrap: mixed images are of two samples"),
        (["--model.members=0"], "model.members: 0 is not valid"),
        (
            ["--model.metrics={ece: {class_path: MulticlassCalibrationError, init_args: {num_classes: 10}}}"],
            "model.metrics.ece: this name is taken",
        ),
        (["--model.param_groups.layer_decay=0.5"], "model.param_groups.layer_decay: the layers of several networks"),
    ],
)
def test_refusals(fit_images, flags, message):
    done = fit_images("fit", *MEMBERS, *flags)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.filterwarnings("ignore:.*logging interval")
def test_copies_of_one_network_are_refused(images, tmp_path):
    torch.manual_seed(0)
    model = Classifier(small(), members=2, num_classes=10)
    with pytest.raises(UserError, match=r"model\.members: all have the same weights and would learn"):
        trained(model, images, tmp_path)


def test_muon_leaves_out_the_last_layer_of_each_member():
    from litlab.optim import Muon

    model = built(2, optimizer=Muon)
    groups = model.new_optimizer().param_groups
    others = {id(p) for group in groups if group["method"] != "muon" for p in group["params"]}
    assert all(id(one[4].weight) in others and id(one[0].weight) not in others for one in model.networks)


def test_a_bootstrapped_ensemble_has_no_loss_of_a_part_of_a_batch(fit_images):
    done = fit_images("fit", *MEMBERS, "--model.bootstrap=true", "--trainer.callbacks=[GradientNoiseScale]")
    assert done.code == 2
    assert "model.bootstrap: members have samples of their own, so a callback that computes" in done.err
    assert "Traceback" not in done.err
