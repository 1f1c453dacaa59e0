"""Ensembles: each member learns as if it were alone, at once or one after the other."""

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.errors import UserError
from litlab.nn.ensemble import Ensemble
from litlab.optim import Muon
from litlab.parallel import ShardedStrategy
from litlab.tasks import Classifier

SHAPE = (3, 32, 32)
pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*many workers", "ignore:.*no `val_data")


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 5, stride=3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))


def trained(model: Classifier) -> Classifier:
    seed_everything(0, verbose=False)
    images = torch.randn(60, *SHAPE, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(images, torch.arange(60) % 10), batch_size=20)
    Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(model, loader)  # fmt: skip
    return model


def built(members: int, **settings) -> Classifier:
    torch.manual_seed(3)
    settings.setdefault("optimizer", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    return Classifier(small, members=members, num_classes=10, **settings)


@pytest.mark.parametrize("vectorize", [False, True])
def test_each_member_learns_by_the_gradient_of_its_own_loss(vectorize):
    several = built(3, vectorize=vectorize, label_smoothing=0.1)
    starts = [{name: value.clone() for name, value in one.state_dict().items()} for one in several.networks]
    assert not torch.equal(starts[0]["0.weight"], starts[1]["0.weight"])
    trained(several)
    for number, start in enumerate(starts):
        alone = built(1, label_smoothing=0.1)
        alone.network.load_state_dict(start)
        trained(alone)
        for name, value in alone.network.state_dict().items():
            assert not torch.equal(value, start[name])
            torch.testing.assert_close(several.networks[number].state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_predictions_are_the_mean_of_probabilities_and_the_loss_that_of_all():
    model, seen, labels = built(3, mixup=0.0), torch.randn(5, *SHAPE), torch.arange(5)
    logits = [one(seen) for one in model.networks]
    expected = torch.stack([each.softmax(dim=1) for each in logits]).mean(dim=0)
    losses = torch.stack([model.training_loss(each, labels) for each in logits])
    torch.testing.assert_close(model.batch_loss((seen, labels)), losses.sum())
    model.eval()
    torch.testing.assert_close(model.predict_step(seen, 0), expected)
    torch.testing.assert_close(model.test_step((seen, labels), 0)["logits"].exp(), expected)


def test_dropout_differs_between_members():
    torch.manual_seed(0)
    both = Ensemble([nn.Sequential(nn.LayerNorm(64), nn.Dropout(0.5)) for _ in range(2)], vectorize=True)
    first, second = both(torch.arange(64.0)[None])
    assert not torch.equal(first, second)


def test_muon_leaves_out_the_last_layer_of_each_member():
    model = built(2, optimizer=Muon)
    groups = model.new_optimizer().param_groups
    others = {id(p) for group in groups if group["method"] != "muon" for p in group["params"]}
    assert all(id(one[4].weight) in others and id(one[0].weight) not in others for one in model.networks)


def test_a_run_of_an_ensemble(fit_images, run):
    members = ["--model=Classifier", "--model.network=auks.images.MNASNet", "--model.members=2"]
    done = fit_images("fit", *members, "--trainer.max_epochs=1")
    assert done.code == 0, done.err
    done = run("test", "--run", "images/version_0", "--trainer.accelerator=cpu")
    assert done.code == 0, done.err


def test_refusals():
    with pytest.raises(
        UserError, match=r"model\.members: all have the same weights and would learn the same; in Python"
    ):
        trained(Classifier(small(), members=2, num_classes=10))
    model = Classifier(small, members=2, num_classes=10)
    model.trainer = Trainer(accelerator="cpu", devices=1, strategy=ShardedStrategy(), logger=False)
    with pytest.raises(UserError, match=r"model\.members: trainer.strategy ShardedStrategy divides a network, and an"):
        model.setup("fit")
