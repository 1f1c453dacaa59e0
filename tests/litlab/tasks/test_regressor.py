"""Regressor: units, losses, shapes."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.regression import MeanAbsolutePercentageError

from litlab.errors import UserError
from litlab.tasks import Regressor
from tests.litlab.tasks.tiny_series import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")
MEAN, STD = torch.tensor([100.0, -3.0]), torch.tensor([20.0, 0.5])


def build(network: nn.Module | None = None, targets: int = 2, **settings) -> Regressor:
    torch.manual_seed(0)
    facts = {"target_names": ["price", "size"], "target_mean": MEAN.tolist(), "target_std": STD.tolist()}
    facts = {name: values[:targets] for name, values in facts.items()}
    return Regressor(network or nn.Linear(4, targets), **{**facts, **settings})


def rows(targets: int = 2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(23, 4, generator=generator), (torch.randn(23, 2, generator=generator) * STD + MEAN)[:, :targets]


def trained(tmp_path, model, data):
    trainer = make_trainer(tmp_path)
    loader = DataLoader(TensorDataset(*data), batch_size=5)
    trainer.fit(model, loader, loader)
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    return metrics, torch.cat(trainer.predict(model, DataLoader(data[0], batch_size=5)))


def test_metrics_are_in_the_units_of_the_file_and_the_loss_is_not(tmp_path):
    still, further = partial(torch.optim.SGD, lr=1e-12), {"mape": MeanAbsolutePercentageError()}
    model, (inputs, target) = build(optimizer=still, metrics=further), rows()
    metrics, predicted = trained(tmp_path, model, (inputs, target))
    torch.testing.assert_close(predicted, model.network(inputs).detach() * STD + MEAN)
    error = predicted - target
    for stage in ("train", "val"):
        expected = {"loss": (error / STD).square().mean(), "mape": (error / target).abs().mean()}
        for name, miss, truth in zip(("price", "size"), error.T, target.T, strict=True):
            squared = miss.square().mean()
            r2 = 1 - squared / truth.var(unbiased=False)
            expected |= {f"mse_{name}": squared, f"mae_{name}": miss.abs().mean(), f"r2_{name}": r2}
        for name, value in expected.items():
            assert metrics[f"{stage}/{name}"] == pytest.approx(value.item(), rel=1e-4), name


def test_a_single_target_may_come_without_a_dimension(tmp_path):
    inputs, target = rows(targets=1)
    metrics, predicted = trained(tmp_path, build(targets=1), (inputs, target.flatten()))
    assert metrics["val/mae"] == pytest.approx((predicted - target).abs().mean().item(), rel=1e-4)
    assert {"val/mse", "val/r2", "train/r2"} <= metrics.keys()


@pytest.mark.parametrize(("loss", "function"), [("mse", F.mse_loss), ("mae", F.l1_loss), ("huber", F.huber_loss)])
def test_losses(loss, function):
    model, (inputs, target) = build(loss=loss), rows()
    standardised = (target - MEAN) / STD
    expected = function(model.network(inputs), standardised)
    torch.testing.assert_close(model.batch_loss((inputs, target)), expected)
    assert model.expected_loss((inputs, target)) == pytest.approx(function(0 * standardised, standardised).item())
    exported = model.test_predictions(model.predict_step(inputs, 0), target)
    torch.testing.assert_close(exported["loss"], expected)


class Both(nn.Linear):
    def forward(self, numbers, categories):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(numbers) + categories


def test_inputs_may_be_a_dict_of_any_precision():
    model = build(Both(4, 2)).double()
    predicted = model.predict_step({"numbers": rows()[0], "categories": torch.ones(23, 2, dtype=torch.int64)}, 0)
    assert predicted.isfinite().all()
    assert set(model.state_dict()) == {"network.weight", "network.bias"}, "units are settings, not weights"


def test_a_network_needs_an_output_for_each_target():
    with pytest.raises(UserError, match=r"^model\.network: it returns \(23, 3\); give it an output for each of price"):
        build(nn.Linear(4, 3)).batch_loss(rows())
