"""Regressor: units, losses, shapes."""

from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.regression import MeanAbsolutePercentageError

from litlab.errors import UserError
from litlab.tasks import Regressor

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")
TWO = {"target_names": ["price", "size"], "target_mean": [100.0, -3.0], "target_std": [20.0, 0.5]}


def build(network: nn.Module | None = None, **settings) -> Regressor:
    torch.manual_seed(0)
    settings = {**TWO, **settings}
    return Regressor(network or nn.Linear(4, len(settings["target_names"] or "1")), **settings)


def rows(count: int = 23, targets: int = 2):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 4, generator=generator)
    target = torch.randn(count, 2, generator=generator) * torch.tensor([20.0, 0.5]) + torch.tensor([100.0, -3.0])
    return inputs, target[:, :targets]


def trained(tmp_path, model, data):
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(*data), batch_size=5)
    trainer.fit(model, loader, loader)
    metrics = dict(trainer.callback_metrics)
    predicted = torch.cat(trainer.predict(model, DataLoader(data[0], batch_size=5)))
    return metrics, predicted


def test_metrics_are_in_the_units_of_the_file_and_the_loss_is_not(tmp_path):
    model, (inputs, target) = build(optimizer=partial(torch.optim.SGD, lr=1e-12)), rows()
    metrics, predicted = trained(tmp_path, model, (inputs, target))
    scale = torch.tensor([20.0, 0.5])
    with torch.no_grad():
        outputs = model.network(inputs)
    torch.testing.assert_close(predicted, outputs * scale + torch.tensor([100.0, -3.0]))
    for stage in ("train", "val"):
        assert metrics[f"{stage}/loss"].item() == pytest.approx(
            ((predicted - target) / scale).square().mean().item(), rel=1e-4
        )
        for place, name in enumerate(TWO["target_names"]):
            error = (predicted - target)[:, place]
            assert metrics[f"{stage}/mse_{name}"].item() == pytest.approx(error.square().mean().item(), rel=1e-4)
            assert metrics[f"{stage}/mae_{name}"].item() == pytest.approx(error.abs().mean().item(), rel=1e-4)
            r2 = 1 - error.square().mean() / target[:, place].var(unbiased=False)
            assert metrics[f"{stage}/r2_{name}"].item() == pytest.approx(r2.item(), rel=1e-4)


def test_further_metrics_are_in_the_units_of_the_file(tmp_path):
    inputs, target = rows()
    model = build(metrics={"mape": MeanAbsolutePercentageError()})
    metrics, predicted = trained(tmp_path, model, (inputs, target))
    assert metrics["val/mape"].item() == pytest.approx(((predicted - target) / target).abs().mean().item(), rel=1e-5)
    assert "train/mape" in metrics


def test_a_single_target_may_come_without_a_dimension(tmp_path):
    inputs, target = rows(targets=1)
    one = {"target_names": ["price"], "target_mean": [100.0], "target_std": [20.0]}
    found = [trained(tmp_path, build(**one), (inputs, y))[0] for y in (target, target.flatten())]
    assert found[0] == found[1]
    assert {"val/mse", "val/mae", "val/r2", "train/r2"} <= found[0].keys()


@pytest.mark.parametrize(("loss", "function"), [("mse", F.mse_loss), ("mae", F.l1_loss), ("huber", F.huber_loss)])
def test_losses(loss, function):
    model, (inputs, target) = build(loss=loss), rows()
    standardised = (target - torch.tensor([100.0, -3.0])) / torch.tensor([20.0, 0.5])
    torch.testing.assert_close(model.batch_loss((inputs, target)), function(model.network(inputs), standardised))
    assert model.expected_loss((inputs, target)) == pytest.approx(function(0 * standardised, standardised).item())
    target[3, 0] = torch.nan
    assert model.batch_loss((inputs, target)).isnan()


def test_inputs_may_be_a_dict_of_any_precision():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, numbers, categories):
            return self.layer(numbers) + categories

    model = build(Both()).double()
    predicted = model.predict_step({"numbers": rows()[0], "categories": torch.ones(23, 2, dtype=torch.int64)}, 0)
    assert predicted.isfinite().all()


def test_scale_is_a_setting_not_a_weight():
    model = build()
    assert set(model.state_dict()) == {"network.weight", "network.bias"}
    assert model.hparams["target_mean"] == [100.0, -3.0]
    assert {name for name, _ in model.named_buffers()} == {"mean", "std"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"target_names": None},
            "model.target_names: it is not set, and the data does not provide it; name the targets",
        ),
    ],
)
def test_refusals(settings, says):
    with pytest.raises(UserError) as error:
        build(**settings)
    assert str(error.value) == says


@pytest.mark.parametrize("network", [nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 2), nn.Flatten(0))])
def test_a_network_of_another_size_is_one_line(network):
    says = r"^model\.network: it returns \(.*\); give it an output for each of price, size"
    with pytest.raises(UserError, match=says):
        build(network).batch_loss(rows())
