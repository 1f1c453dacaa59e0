"""Regressor: units, losses, shapes."""

from functools import partial

import pytest
import torch
from lightning.pytorch import LightningDataModule
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.regression import MeanAbsolutePercentageError

from litlab.tasks import Regressor
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.data.conftest import refusal

MEAN, STD = torch.tensor([100.0, -3.0]), torch.tensor([20.0, 0.5])


def build(network: nn.Module | None = None, targets: int = 2, **settings) -> Regressor:
    torch.manual_seed(0)
    return Regressor(
        network or nn.Linear(4, targets),
        target_names=["price", "size"][:targets],
        target_mean=MEAN[:targets].tolist(),
        target_std=STD[:targets].tolist(),
        **settings,
    )


def rows(targets: int = 2):
    values = torch.randn(23, 6, generator=torch.Generator().manual_seed(1))
    return values[:, :4], (values[:, 4:] * STD + MEAN)[:, :targets]


class Rows(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(*rows()), batch_size=5)

    val_dataloader = test_dataloader = train_dataloader


@pytest.mark.parametrize("names", [["_price", "_size"], [""]])
def test_metrics_are_in_the_units_of_the_file_and_the_loss_is_not(tmp_path, names):
    """A single target may come without a dimension, and needs no name."""
    count = len(names)
    still, further = partial(torch.optim.SGD, lr=1e-12), {"mape": MeanAbsolutePercentageError()}
    model, (inputs, target) = build(targets=count, optimizer=still, metrics=further), rows(count)
    data = TensorDataset(inputs, target if count > 1 else target.flatten())
    loader, trainer = DataLoader(data, batch_size=5), make_trainer(tmp_path)
    trainer.fit(model, loader, loader)
    metrics = dict(trainer.callback_metrics)
    predicted = torch.cat(trainer.predict(model, DataLoader(inputs, batch_size=5)))
    torch.testing.assert_close(
        predicted, model.network(inputs).detach() * STD[:count].double() + MEAN[:count]
    )
    error = predicted.float() - target
    for stage in ("train", "val"):
        loss, mape = (error / STD[:count]).square().mean(), (error / target).abs().mean()
        expected = {"loss": loss, "mape": mape}
        expected |= {f"mae{name}": error[:, k].abs().mean() for k, name in enumerate(names)}
        for name, value in expected.items():
            torch.testing.assert_close(metrics[f"{stage}/{name}"], value, rtol=1e-4, atol=0)
        assert {f"{stage}/{score}{names[0]}" for score in ("mse", "r2")} < metrics.keys()
    # Units are settings, not weights
    assert set(model.state_dict()) == {"network.weight", "network.bias"}


@pytest.mark.parametrize(
    ("loss", "function"), [("mse", F.mse_loss), ("mae", F.l1_loss), ("huber", F.huber_loss)]
)
def test_losses_of_any_precision(loss, function):
    model, (inputs, target) = build(loss=loss).double(), rows()
    standardised = (target.double() - MEAN) / STD
    expected = function(model.network(inputs.double()), standardised).float()
    torch.testing.assert_close(model.batch_loss((inputs, target)).float(), expected)
    assert model.expected_loss((inputs, target)) == pytest.approx(
        function(0 * standardised, standardised).item()
    )


def test_units_may_be_left_out_and_a_network_needs_an_output_for_each_target():
    network, (inputs, _) = nn.Linear(4, 1), rows()
    model = Regressor(network, target_names=["price"])
    assert torch.equal(model.predict_step(inputs, 0), network(inputs))
    line = refusal(build(nn.Linear(4, 3)).batch_loss, rows())
    assert line.startswith("model.network: it returns (23, 3); give it an output for each of price")
