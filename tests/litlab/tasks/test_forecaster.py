"""Forecaster: errors over an epoch, losses, calibrated intervals, checkpoints, and what it
refuses.
"""

import math
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional as F

from litlab.callbacks import EMA
from litlab.tasks import Forecaster
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.data.conftest import refusal
from tests.litlab.tasks.tiny_series import TinySeries, everything

QUANTILES = [0.1, 0.5, 0.9]


class Linear(nn.Module):
    """A linear map of each channel from 12 rows to 6."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 6 * outputs)

    def forward(self, past, covariates=None):
        return self.layer(past.mT).unflatten(2, (6, -1)).transpose(1, 2)


def build(outputs: int = 1, **settings) -> Forecaster:
    torch.manual_seed(0)
    optimizer = partial(torch.optim.SGD, lr=0.05)
    defaults = {"optimizer": optimizer, "horizon": 6, "num_targets": 2}
    return Forecaster(Linear(outputs), **defaults | settings)


def forecast_of(model, data, stage):
    """The forecast of the weights that the model has now, and the truth."""
    windows = everything(data, stage)
    with torch.no_grad():
        return model.eval().network(windows["past"]).squeeze(-1), windows["future"]


def radius_of(model, data):
    forecast, future = forecast_of(model, data, 1)
    return (forecast - future).abs().sort(dim=0).values[math.ceil(24 * 0.9) - 1]


def check_logged(trainer, stage, **expected):
    for name, value in expected.items():
        torch.testing.assert_close(trainer.callback_metrics[f"{stage}/{name}"], value)


def test_what_is_logged_is_the_mean_over_all_windows(tmp_path, caplog):
    data, model, radii = TinySeries(), build(loss="huber"), []
    model.on_train_start = lambda: radii.append(model.conformal.radius)
    trainer = make_trainer(tmp_path, max_epochs=2, num_sanity_val_steps=-1)
    trainer.fit(model, data)
    assert radii == [None]  # the sanity check calibrates nothing
    pair = forecast_of(model, data, 1)
    check_logged(
        trainer, "val", loss=F.huber_loss(*pair), mse=F.mse_loss(*pair), mae=F.l1_loss(*pair)
    )
    radius = radius_of(model, data)
    torch.testing.assert_close(model.conformal.radius, radius)

    forecast, future = forecast_of(model, data, 2)
    assert model.expected_loss(everything(data, 2)) == pytest.approx(
        F.huber_loss(0 * future, future).item()
    )
    error = (future - forecast).abs()
    for _ in range(2):  # the second test starts anew
        trainer.test(model, data, verbose=False)
        mase, width = (error / data.naive_error).mean(), 2 * radius.mean()
        check_logged(trainer, "test", mse=error.square().mean(), mase=mase, interval_width=width)
        check_logged(trainer, "test", coverage=(error <= radius).float().mean())
    assert "the intervals hold" not in caplog.text
    model.conformal.radius = 0 * radius
    trainer.test(model, data, verbose=False)
    assert "the intervals hold 0.0% of the test's values, not 90%" in caplog.text


def test_without_validation_there_are_no_intervals(tmp_path):
    data, model = TinySeries(), build()
    trainer = make_trainer(tmp_path, limit_val_batches=0)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    assert {"test/coverage", "test/interval_width"}.isdisjoint(trainer.callback_metrics)
    predicted = torch.cat(trainer.predict(model, data))
    assert predicted.isnan().flatten(0, 2).any(dim=0).tolist() == [False, True, True]


def test_pinball_loss_and_quantiles_in_order(tmp_path):
    data, model = TinySeries(), build(3, quantiles=QUANTILES, coverage=0.8)
    with torch.no_grad():  # the upper quantile below the others
        model.network.layer.bias.view(6, 3).copy_(torch.tensor([-0.3, 0.0, -1.0]))
    trainer = make_trainer(tmp_path)
    trainer.validate(model, data, verbose=False)
    raw, future = forecast_of(model, data, 1)
    outputs, quantiles = raw.sort(dim=-1).values, torch.tensor(QUANTILES)

    def pinball(outputs):
        error = future.unsqueeze(-1) - outputs
        return torch.where(error > 0, quantiles * error, (quantiles - 1) * error).mean()

    check_logged(trainer, "val", loss=pinball(outputs), mae=(future - outputs[..., 1]).abs().mean())
    crossed = model.train().batch_loss(everything(data, 1))  # training takes them as they come
    torch.testing.assert_close(crossed.detach(), pinball(raw))
    assert crossed > pinball(outputs) + 0.01

    scores = torch.maximum(outputs[..., 0] - future, future - outputs[..., 2]).sort(dim=0).values
    radius = scores[math.ceil(24 * 0.8) - 1]
    torch.testing.assert_close(model.conformal.radius, radius)
    predicted = torch.cat(trainer.predict(model, data))
    low, middle, high = forecast_of(model, data, 0)[0][:3].sort(dim=-1).values.unbind(-1)
    torch.testing.assert_close(
        predicted, torch.stack([middle, low - radius, high + radius], dim=-1)
    )


def test_a_checkpoint_has_the_radius_of_its_weights(tmp_path):
    """Those are an average."""
    data, model = TinySeries(), build()
    checkpoint = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer = make_trainer(
        tmp_path, max_epochs=2, enable_checkpointing=True, callbacks=[checkpoint, EMA(0.8)]
    )
    trainer.fit(model, data)
    radii = []
    for epoch in range(2):
        path = tmp_path / f"epoch={epoch}.ckpt"
        loaded = Forecaster.load_from_checkpoint(path, network=Linear(), weights_only=True)
        expected = radius_of(loaded, data)
        torch.testing.assert_close(loaded.conformal.radius, expected)
        trainer.test(model, data, ckpt_path=path, weights_only=True, verbose=False)
        torch.testing.assert_close(
            trainer.callback_metrics["test/interval_width"], 2 * expected.mean()
        )
        radii.append(expected)
    assert not torch.allclose(radii[0], radii[1])
    other = Forecaster.load_from_checkpoint(path, network=Linear(), coverage=0.5, weights_only=True)
    assert other.conformal.radius is None


def test_data_of_another_size_and_a_network_of_another_shape(tmp_path):
    trainer = make_trainer(tmp_path, num_sanity_val_steps=0)
    for action, arguments, says in (
        (trainer.fit, (build(horizon=5), TinySeries()), "horizon: 5 differs from the data's 6"),
        (trainer.predict, (build(horizon=5), TinySeries()), "horizon: 5 differs from the data's 6"),
        (trainer.fit, (build(2), TinySeries()), "returns (5, 6, 2, 2), not "),
        (partial(build, quantiles=[0.1, 0.9]), (), "contain 0.5"),
        (partial(build, horizon=None), (), "model: horizon and num_targets are not set"),
    ):
        assert says in refusal(action, *arguments)
