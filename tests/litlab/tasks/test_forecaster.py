"""Forecaster: what it logs, and the intervals in its checkpoints."""

import json
import math
from functools import partial

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F

from litlab.errors import UserError
from litlab.tasks import Forecaster
from tests.conftest import ROOT
from tests.litlab.tasks.tiny_series import TinySeries, everything, make_trainer
from tests.processes import Python, ranks

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")
QUANTILES = [0.1, 0.5, 0.9]


class Linear(nn.Module):
    """One linear layer from a window to its forecast, with batch normalisation's buffers to be averaged."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12)
        self.layer = nn.Linear(12, 6 * outputs)

    def forward(self, past, calendar):
        return self.layer(self.norm(past).transpose(1, 2)).unflatten(2, (6, -1)).transpose(1, 2)


def build(outputs=1, **settings) -> Forecaster:
    torch.manual_seed(0)
    settings = {"optimizer": partial(torch.optim.SGD, lr=0.05), **settings}
    return Forecaster(Linear(outputs), horizon=6, num_targets=2, **settings)


@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_what_is_logged_is_the_mean_over_all_windows(tmp_path, loss):
    data, model = TinySeries(), build(loss=loss)
    trainer = make_trainer(tmp_path, max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(model, data)
    logged = dict(trainer.callback_metrics)
    val, test = everything(data, 1), everything(data, 2)
    function = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}[loss]
    with torch.no_grad():
        forecast = model.eval()(val["past"]).squeeze(-1)
    torch.testing.assert_close(logged["val/loss"], function(forecast, val["future"]))
    torch.testing.assert_close(logged["val/mse"], F.mse_loss(forecast, val["future"]))
    torch.testing.assert_close(logged["val/mae"], F.l1_loss(forecast, val["future"]))
    residuals = (val["future"] - forecast).abs().sort(dim=0).values
    radius = residuals[math.ceil(24 * 0.9) - 1]
    torch.testing.assert_close(model.conformal.radius, radius)

    trainer.test(model, data, verbose=False)
    logged = dict(trainer.callback_metrics)
    with torch.no_grad():
        forecast = model(test["past"]).squeeze(-1)
    error = (test["future"] - forecast).abs()
    torch.testing.assert_close(logged["test/loss"], function(forecast, test["future"]))
    torch.testing.assert_close(logged["test/mse"], error.square().mean())
    torch.testing.assert_close(logged["test/mae"], error.mean())
    torch.testing.assert_close(logged["test/mase"], (error / data.naive_error).mean())
    torch.testing.assert_close(logged["test/coverage"], (error <= radius).float().mean())
    torch.testing.assert_close(logged["test/interval_width"], 2 * radius.mean())
    trainer.test(model, data, verbose=False)
    assert trainer.callback_metrics["test/mse"] == logged["test/mse"]  # the second test starts anew


def test_training_loss_of_the_epoch_and_of_its_steps(tmp_path):
    logger, logged = CSVLogger(tmp_path), []
    logger.log_metrics = lambda metrics, step=None: logged.append((metrics, step))
    model, losses = build(optimizer=partial(torch.optim.SGD, lr=0.1)), []
    step = model.training_step

    def remember(batch, batch_idx):
        loss = step(batch, batch_idx)
        losses.append((loss.item(), len(batch["past"])))
        return loss

    model.training_step = remember
    trainer = make_trainer(tmp_path, max_epochs=2, logger=logger, log_every_n_steps=2, limit_val_batches=0)
    trainer.fit(model, TinySeries())
    assert [samples for _, samples in losses] == [5, 5, 5, 5, 3] * 2
    second = losses[5:]
    mean = sum(loss * samples for loss, samples in second) / 23
    assert trainer.callback_metrics["train/loss"] == pytest.approx(mean, rel=1e-5)
    of_steps = [(metrics["train/loss_step"], step) for metrics, step in logged if "train/loss_step" in metrics]
    assert of_steps == [(loss, step) for (loss, _), step in zip(losses[1::2], (1, 3, 5, 7, 9), strict=True)]


def test_pinball_loss_and_quantiles_in_order(tmp_path):
    data, model = TinySeries(), build(3, quantiles=QUANTILES, coverage=0.8)
    trainer = make_trainer(tmp_path, max_epochs=1, num_sanity_val_steps=0)
    trainer.fit(model, data)
    with torch.no_grad():  # the upper quantile below the others
        model.network.layer.bias.view(6, 3).copy_(torch.tensor([-0.3, 0.0, -1.0]))
    trainer.validate(model, data, verbose=False)
    val = everything(data, 1)
    with torch.no_grad():
        raw = model.eval()(val["past"])
    outputs = raw.sort(dim=-1).values
    assert not torch.equal(raw, outputs)
    error = val["future"].unsqueeze(-1) - outputs
    pinball = sum(
        torch.where(e > 0, q * e, (q - 1) * e).mean() for q, e in zip(QUANTILES, error.unbind(-1), strict=True)
    )
    torch.testing.assert_close(trainer.callback_metrics["val/loss"], pinball / 3)
    torch.testing.assert_close(trainer.callback_metrics["val/mae"], error[..., 1].abs().mean())
    scores = torch.maximum(outputs[..., 0] - val["future"], val["future"] - outputs[..., 2]).sort(dim=0).values
    torch.testing.assert_close(model.conformal.radius, scores[math.ceil(24 * 0.8) - 1])
    predicted = torch.cat(trainer.predict(model, data))
    with torch.no_grad():
        outputs = model(everything(data, 0)["past"][:3]).sort(dim=-1).values
    assert predicted.shape == (3, 6, 2, 3)
    torch.testing.assert_close(predicted[..., 0], outputs[..., 1])
    torch.testing.assert_close(predicted[..., 1], outputs[..., 0] - model.conformal.radius)
    torch.testing.assert_close(predicted[..., 2], outputs[..., 2] + model.conformal.radius)


def test_training_takes_the_quantiles_as_they_come(tmp_path):
    model = build(3, quantiles=QUANTILES)
    model.trainer = make_trainer(tmp_path, log_every_n_steps=0)
    with torch.no_grad():
        model.network.layer.bias.view(6, 3).copy_(torch.tensor([9.0, 0.0, -9.0]))
    batch = everything(TinySeries(), 0)
    crossed = model.train().training_step(batch, 0)
    ordered = model.eval()._loss(model._outputs(batch), batch["future"])
    assert crossed > 2 * ordered


def test_intervals_cover_what_they_promise(tmp_path):
    data = TinySeries(windows=300, noise=1.0)
    model = build(coverage=0.8)
    trainer = make_trainer(tmp_path)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    assert trainer.callback_metrics["test/coverage"] == pytest.approx(0.8, abs=0.03)


def test_without_validation_there_are_no_intervals_and_it_says_so(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr("litlab.tasks.forecaster.rank_zero_info", said.append)
    data, model = TinySeries(), build()
    trainer = make_trainer(tmp_path, limit_val_batches=0)
    trainer.fit(model, data)
    assert not said
    trainer.test(model, data, verbose=False)
    assert len(said) == 1
    assert "no intervals" in said[0]
    assert {"test/coverage", "test/interval_width"}.isdisjoint(trainer.callback_metrics)
    assert trainer.callback_metrics["test/mse"].isfinite()
    output = model.test_step(everything(data, 2), 0)
    assert output["forecast"].isfinite().all()
    assert output["lower"].isnan().all()
    assert output["upper"].isnan().all()
    assert torch.cat(trainer.predict(model, data))[..., 1:].isnan().all()
    assert len(said) == 2


def test_the_sanity_check_calibrates_nothing(tmp_path):
    model, radii = build(), []
    start = model.on_train_epoch_start
    model.on_train_epoch_start = lambda: (radii.append(model.conformal.radius), start())
    make_trainer(tmp_path, num_sanity_val_steps=-1).fit(model, TinySeries())
    assert radii == [None]
    assert model.conformal.radius is not None


@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"horizon": None}, "model: horizon and num_targets are not set"),
        ({"quantiles": [0.5, 0.1]}, "model.quantiles: "),
        ({"quantiles": [0.1, 0.1, 0.5]}, "model.quantiles: "),
        ({"quantiles": [0.1, 0.9]}, "contain 0.5"),
    ],
)
def test_refusals(settings, says):
    with pytest.raises(UserError, match=says):
        Forecaster(Linear(), **{"horizon": 6, "num_targets": 2, **settings})


def test_data_of_another_size_and_a_network_of_another_shape(tmp_path):
    data, model = TinySeries(), Forecaster(Linear(), horizon=5, num_targets=2)
    trainer = make_trainer(tmp_path)
    for verb in (trainer.fit, trainer.validate, trainer.test, trainer.predict):
        with pytest.raises(UserError, match=r"^model.horizon: 5 differs from the data's 6"):
            verb(model, data)
    with pytest.raises(UserError, match=r"returns \(5, 6, 2, 2\), not .* = \(5, 6, 2, 1\)"):
        make_trainer(tmp_path, num_sanity_val_steps=0).fit(build(outputs=2), data)


def evaluate(folder, **options) -> dict:
    """What a validation and a test of a fresh model give."""
    model, data = build(2, quantiles=[0.5, 0.9]), TinySeries(windows=21)
    trainer = make_trainer(folder, **options)
    trainer.validate(model, data, verbose=False)
    logged = dict(trainer.callback_metrics)
    trainer.test(model, data, verbose=False)
    result = {name: value.item() for name, value in {**logged, **trainer.callback_metrics}.items()}
    result["radius"] = model.conformal.radius.flatten().tolist()
    return {**result, "rank": trainer.global_rank}


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.litlab.tasks.test_forecaster import evaluate

result = evaluate(sys.argv[2], devices=2, strategy="ddp")
with open(f"{sys.argv[2]}/{result.pop('rank')}.json", "w") as file:
    json.dump(result, file)
"""


def test_two_processes_evaluate_like_one(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(PROGRAM)
    processes = [Python(script, ROOT, tmp_path, cwd=ROOT, environment=of_rank) for of_rank in ranks(2)]
    printed = [process.communicate(120)[1] for process in processes]
    assert [process.wait() for process in processes] == [0, 0], printed
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    one = evaluate(tmp_path)  # 21 windows; the two have 11 and 10
    assert one.pop("rank") == 0
    assert {"val/loss", "val/mse", "test/mase", "test/coverage", "radius"} <= one.keys()
    for name, value in one.items():
        assert first[name] == second[name] == pytest.approx(value, rel=1e-5), name
