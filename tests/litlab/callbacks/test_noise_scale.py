"""The gradient noise scale of a fit, which does not notice that it is measured."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from litlab.callbacks.noise_scale import GradientNoiseScale, estimate_noise
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal
from tests.litlab.callbacks.tiny import fit as fit_tiny
from tests.litlab.checkpointing.in_process import fit


def test_estimates_are_unbiased():
    """Gradients of a known mean and covariance: that of a sample is the sample; one parameter is
    not trained.
    """
    torch.manual_seed(0)
    model = Tiny(network=nn.Linear(20, 1))
    model.network.bias.requires_grad_(False)
    model.batch_loss = lambda batch: model.network(batch["x"]).mean()
    mean, std = torch.full((20,), 0.2), torch.linspace(0.5, 2, 20)
    expected = torch.stack([mean.square().sum(), std.square().sum()])
    # micro-batches of 3, three samples are left over
    batches = [mean + std * torch.randn(27, 20) for _ in range(600)]
    estimates = torch.stack([estimate_noise(model, {"x": batch}, 27) for batch in batches])
    errors = estimates.std(dim=0) / math.sqrt(len(estimates))
    assert ((estimates.mean(dim=0) - expected).abs() <= 3 * errors).all()
    assert (errors < 0.05 * expected).all()
    assert estimate_noise(model, {"x": batches[0][:3]}, 3).isnan().all()
    assert model.network.weight.grad is None


def test_the_training_does_not_notice_and_a_resumed_run_has_the_same_points(tmp_path):
    """With batch norm, dropout, accumulation, what the model itself draws, and a run that is
    interrupted twice.
    """
    plain, _ = fit(tmp_path / "plain")
    whole = GradientNoiseScale(every_n_steps=2)
    watched, _ = fit(tmp_path / "watched", callbacks=[whole])
    assert plain.drawn == watched.drawn
    assert are_equal(plain.state_dict(), watched.state_dict())
    assert [point[:2] for point in whole.points] == [[2, 8], [4, 8]]

    for epoch, stop in enumerate(((0, 4), (1, 4), None)):
        resumed = GradientNoiseScale(every_n_steps=2)
        fit(tmp_path / "cut", stop=stop, callbacks=[resumed], resume=epoch > 0)
    assert resumed.points == whole.points


class Plain(Tiny):
    """Any module with a training step: it logs, counts with a metric, and returns a dict."""

    def __init__(self):
        super().__init__()
        self.accuracy = MulticlassAccuracy(4)

    def training_step(self, batch):  # pyright: ignore[reportIncompatibleMethodOverride]
        self.accuracy(self(batch[0]), batch[1])
        self.log_dict({"train/acc": self.accuracy}, on_epoch=True)
        return {"loss": super().training_step(batch, 0)}


def test_a_module_without_a_loss_of_its_own_does_not_notice_either(tmp_path):
    ends, scale = [], GradientNoiseScale(every_n_steps=1)
    for callbacks in ([], [scale]):
        torch.manual_seed(0)
        model = Plain()
        trainer = fit_tiny(tmp_path, model, *callbacks, data=TinyData(32, 8), max_epochs=2)
        ends.append(trainer.callback_metrics | model.state_dict())
    assert are_equal(*ends)
    assert [point[:2] for point in scale.points] == [[step, 8] for step in range(1, 8)]


@pytest.mark.filterwarnings("ignore:Trying to infer the `batch_size`")
def test_what_can_not_be_measured_is_said(tmp_path, caplog):
    fit_tiny(tmp_path, Plain(), GradientNoiseScale(every_n_steps=50))
    assert "nothing was measured" in caplog.text
    model = Plain()
    model.automatic_optimization = False
    with pytest.raises(UserError, match=r"automatic_optimization.*trainer\.callbacks$"):
        fit_tiny(tmp_path, model, GradientNoiseScale())
    data = TinyData(32, 8)
    batch = [torch.rand(8, 3, 8, 8), torch.ones(8).long(), torch.ones(3)]
    data.train_dataloader = lambda: DataLoader([batch], batch_size=None)
    with pytest.raises(UserError, match=r"tensors must be \(batch, \.\.\.\).*callbacks$"):
        fit_tiny(tmp_path, Plain(), GradientNoiseScale(every_n_steps=1), data=data, max_epochs=2)
