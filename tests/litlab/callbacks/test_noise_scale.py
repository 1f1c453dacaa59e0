"""The gradient noise scale of a fit, which does not notice that it is measured."""

import math

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from litlab.callbacks.noise_scale import GradientNoiseScale, estimate_noise
from tests.litlab.checkpointing.in_process import fit

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty"),
]


class Shift(LightningModule):
    """Its gradient of a sample is the sample; one parameter is not trained."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.frozen = nn.Parameter(torch.ones(()), requires_grad=False)

    def batch_loss(self, batch):
        return (batch["x"] @ self.weight).mean() * self.frozen


def test_estimates_are_unbiased():
    """Gradients of a known mean and covariance; the squared norm of the mean gradient alone is far
    off.
    """
    torch.manual_seed(0)
    model, mean, std = Shift(20), torch.full((20,), 0.2), torch.linspace(0.5, 2, 20)
    expected = torch.stack([mean.square().sum(), std.square().sum()])
    # micro-batches of 3, three samples are left over
    batches = [mean + std * torch.randn(27, 20) for _ in range(600)]
    estimates = torch.stack([estimate_noise(model, {"x": batch}, 27) for batch in batches])
    errors = estimates.std(dim=0) / math.sqrt(len(estimates))
    assert ((estimates.mean(dim=0) - expected).abs() <= 3 * errors).all()
    assert (errors < 0.05 * expected).all()
    assert (
        torch.stack([batch.mean(dim=0).square().sum() for batch in batches]).mean()
        > 2 * expected[0]
    )
    assert estimate_noise(model, {"x": batches[0][:3]}, 3).isnan().all()
    assert model.weight.grad is None


def test_the_training_does_not_notice_and_a_resumed_run_has_the_same_points(tmp_path):
    """With batch norm, dropout, accumulation, what the model itself draws, and a run that is
    interrupted twice.
    """
    plain, _ = fit(tmp_path / "plain")
    whole = GradientNoiseScale(every_n_steps=2)
    watched, _ = fit(tmp_path / "watched", callbacks=[whole])
    assert plain.drawn == watched.drawn
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert [(point.step, point.batch) for point in whole.points] == [(2, 8), (4, 8)]

    fit(tmp_path / "cut", stop=("batch", 0, 4), callbacks=[GradientNoiseScale(every_n_steps=2)])
    fit(
        tmp_path / "cut",
        stop=("batch", 1, 4),
        callbacks=[GradientNoiseScale(every_n_steps=2)],
        resume=True,
    )
    resumed = GradientNoiseScale(every_n_steps=2)
    fit(tmp_path / "cut", callbacks=[resumed], resume=True)
    assert resumed.points == whole.points
