"""Gradients of the parts of a batch, and what is estimated from them; no training."""

import math
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from litlab.callbacks.gradient_moments import Moments, micro_batch_moments, per_sample_moments, untouched
from litlab.callbacks.noise_scale_curve import Point, estimates, in_words, next_point
from litlab.tasks import Classifier

SGD = partial(torch.optim.SGD, lr=0.05)


def cnn() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Dropout(0.0), nn.Linear(4 * 36, 4))


def classifier(network: nn.Module, **settings) -> Classifier:
    return Classifier(network, num_classes=4, optimizer=SGD, **settings)


class Shift(LightningModule):
    """Its gradient of a sample is the sample; one parameter is not trained."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.ones((), dtype=torch.float64), requires_grad=False)

    def batch_loss(self, batch):
        return (batch @ self.weight).mean() * self.frozen

    def training_step(self, batch, batch_idx):
        return self.batch_loss(batch)

    def configure_optimizers(self):
        return SGD([self.weight])


def test_moments_are_those_of_a_loop_over_samples(monkeypatch):
    torch.manual_seed(0)
    model = classifier(cnn(), label_smoothing=0.1, class_weights="even").double()
    model.network[0].bias.requires_grad = False  # does not count
    model.class_weights.copy_(torch.tensor([0.5, 1.0, 2.0, 0.5]))
    batch = torch.randn(11, 3, 8, 8, dtype=torch.float64), torch.arange(11) % 4
    trained = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for image, label in zip(*batch, strict=True):
        loss = model.batch_loss((image[None], label[None]))
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)]))
    stacked = torch.stack(gradients)
    expected = Moments(stacked.square().sum(dim=1).mean().item(), stacked.mean(dim=0).square().sum().item(), 1, 11)
    assert per_sample_moments(model, batch, nullcontext) == pytest.approx(expected, rel=1e-12)
    assert per_sample_moments(model, batch, nullcontext, scale=1024.0) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr("litlab.callbacks.gradient_moments.LARGEST", 4 * stacked.shape[1])  # chunks of 4, 4 and 3
    assert per_sample_moments(model, batch, nullcontext) == pytest.approx(expected, rel=1e-12)
    torch.manual_seed(5)
    pairs = stacked[torch.randperm(11)[:10]].view(5, 2, -1).mean(dim=1)  # drawn at random; one sample is left over
    torch.manual_seed(5)
    expected = Moments(pairs.square().sum(dim=1).mean().item(), pairs.mean(dim=0).square().sum().item(), 2, 5)
    assert micro_batch_moments(model, batch, nullcontext, scale=8.0) == pytest.approx(expected, rel=1e-12)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("take", "size"), [(per_sample_moments, 1), (micro_batch_moments, 3)])
def test_estimates_are_unbiased(take, size):
    """Gradients of a known mean and covariance; the naive estimate, without the correction, is far off."""
    torch.manual_seed(0)
    model, mean, std = Shift(20), torch.full((20,), 0.2).double(), torch.linspace(0.5, 2, 20).double()
    grad_sq, trace = mean.square().sum().item(), std.square().sum().item()
    moments = [take(model, mean + std * torch.randn(24, 20).double(), nullcontext) for _ in range(600)]
    assert {(one.size, one.parts) for one in moments} == {(size, 24 // size)}
    found = torch.tensor([estimates(one) for one in moments])
    errors = found.std(dim=0) / math.sqrt(len(found))
    assert (found.mean(dim=0) - torch.tensor([grad_sq, trace])).abs().le(3 * errors).all()
    assert errors[0] < 0.05 * grad_sq
    assert errors[1] < 0.03 * trace
    assert torch.tensor([one.mean_sq for one in moments]).mean() > 2 * grad_sq


def test_averages_and_what_is_made_of_them():
    points: list[Point] = []
    for step in range(1, 4):
        points.append(next_point(points, step, 100, grad_sq=float(step), trace=10.0))
    weights = [0.81, 0.9, 1.0]
    mean = sum(w * step for w, step in zip(weights, (1, 2, 3), strict=True)) / sum(weights)
    assert points[-1] == pytest.approx((3, 100, mean, 10.0))
    assert "840 at the end, above the batch size of 500: larger batches would still save steps" in in_words(
        Point(9, 500, 1.0, 840.0)
    )
    assert "twice the batch takes about 31% fewer steps and 37% more samples" in in_words(Point(9, 500, 1.0, 840.0))
    assert "2.5 at the end, below the batch size of 1,000: larger batches would save few steps" in in_words(
        Point(9, 1000, 2.0, 5.0)
    )
    assert math.isnan(Point(9, 500, -1.0, 840.0).noise_scale)
    assert "lost in the noise of batches of 500" in in_words(Point(9, 500, -1.0, 840.0))


def test_nothing_is_left_behind():
    """Statistics, tensors that take the place of a buffer, generators, gradients; compiled code is left alone."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(192)
            self.calls: torch.Tensor
            self.register_buffer("calls", torch.zeros(()))
            self.layer = nn.Linear(192, 4)
            self.compiled = False

        def forward(self, images):
            self.calls = self.calls + 1
            self.compiled = self.compiled or torch.compiler.is_compiling()
            return nn.functional.dropout(self.layer(self.norm(images.flatten(1))))

    model = classifier(Counts())
    model.network.compile(backend="eager")
    before = {name: (id(value), value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    random = torch.get_rng_state()
    with untouched(model):
        micro_batch_moments(model, (torch.randn(8, 3, 8, 8), torch.arange(8) % 4), nullcontext)
        assert model.network.calls == 4
    after = model.state_dict(keep_vars=True)
    assert {name: id(value) for name, value in after.items()} == {name: place for name, (place, _) in before.items()}
    assert all(torch.equal(after[name], value) for name, (_, value) in before.items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not model.network.compiled
    assert all(parameter.grad is None for parameter in model.parameters())
