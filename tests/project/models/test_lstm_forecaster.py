"""The LSTM forecaster: its start from the ridge, and what it learns."""

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from litlab.callbacks import EMA
from litlab.runs.folder import read_json
from litlab.testing import ModuleContract
from project.models.lstm_forecaster import LSTMForecaster
from project.networks.segment_rnn import SegmentRNN
from tests.conftest import CONFIGS
from tests.litlab.callbacks.tiny import are_equal, make_trainer
from tests.litlab.callbacks.tiny import fit as run_fit
from tests.litlab.parallel import program
from tests.litlab.tasks.tiny_series import TinySeries, everything

TASK = {"horizon": 6, "num_targets": 2}
make_network = partial(
    SegmentRNN, context_length=12, hidden_size=8, segment_length=4, instance_norm="subtract_last",
    decoder="parallel", channel_independent=True, dropout=0.5, **TASK,
)  # fmt: skip
SGD = partial(torch.optim.SGD, lr=0.1)


class TestLSTMForecaster(ModuleContract):
    config = CONFIGS / "forecast.yaml"
    settings = tuple(
        """
            --data.dataset=generated --data.batch_size=10 --data.context_length=48
            --data.horizon=24 --trainer.callbacks=[] --model.network.dropout=0
        """.split()
    )
    tolerance = 0.01
    overfit_steps = 50
    overfit_share = 0.5

    def theory(self, batch):
        # The last value, until training starts
        return (batch["future"] - batch["past"][:, -1:]).abs().mean().item()


PARALLEL = """
    --model.network.decoder=parallel --model.network.segment_length=5
    --model.network.channel_independent=true
"""


@pytest.mark.parametrize("network", ["", PARALLEL])
def test_the_price_alone_explains_the_future(run, tmp_path, network):
    """20 shops in long format, that sell what the price of the day makes them sell."""
    times = np.tile(pd.date_range("2024-01-01", periods=60).astype(str), 20)
    frame = pd.DataFrame({"date": times, "shop": np.repeat(np.arange(20), 60)})
    frame["price"] = np.random.default_rng(0).uniform(1, 9, len(frame))
    frame["size"] = frame["shop"] % 3
    frame["sales"] = 1e9 - 8 * frame["price"] + 10 * frame["size"]
    frame.to_csv(tmp_path / "shops.csv", index=False)
    line = f"""
        fit --model=LSTMForecaster --model.network=project.networks.segment_rnn.SegmentRNN
        --model.network.hidden_size=32 {network}
        --model.optimizer=torch.optim.Adam --model.optimizer.lr=0.01
        --data=SeriesData --data.dataset=csv --data.path=shops.csv --data.series_column=shop
        --data.targets=[sales] --data.context_length=10 --data.horizon=5 --data.batch_size=32
        --trainer.max_epochs=8 --trainer.accelerator=cpu --trainer.log_every_n_steps=1
    """
    run(line, "--data.covariates=[size,price]").check()
    metrics = read_json(tmp_path / "lightning_logs/default/version_0/metrics.json")
    assert metrics["test"]["test/mse"] < 0.1 * np.var(8 * frame["price"])


def build(optimizer=None, ensemble=None, quantiles=None, **settings) -> LSTMForecaster:
    torch.manual_seed(0)
    options = {"ensemble": ensemble, "quantiles": quantiles, "optimizer": optimizer}
    return LSTMForecaster(partial(make_network, **settings), **TASK, **options)


RANK = """
import sys
from lightning.pytorch import seed_everything
from tests.litlab.callbacks.tiny import make_trainer
from tests.litlab.tasks.tiny_series import TinySeries
from tests.project.models.test_lstm_forecaster import build

seed_everything(0)
data, model = TinySeries(windows=20), build(skip="ridge")
options = {"devices": 2, "strategy": "ddp", "use_distributed_sampler": False}
make_trainer(sys.argv[1], **options).fit(model, data)
weights = [weight.sum().item() for weight in model.state_dict().values()]
print("ridges", len(data.ridge_calls), "weights", weights)
"""


def test_one_of_two_processes_solves_the_ridge(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(RANK)
    printed = program.wait(program.start(script, 2, tmp_path))
    first, second = (re.search(r"ridges (\d) weights (.*)", text).groups() for text in printed)
    assert (first[0], second[0]) == ("1", "0")
    assert first[1] == second[1]


MEMBERS = [
    {},
    {"last_rows": 8, "skip": "none", "cell": "gru", "hidden_size": 6},
    {"last_rows": 7, "hidden_size": 0},
]


def test_members_forecast_their_mean(tmp_path):
    data, model = TinySeries(), build(skip="ridge", ensemble=MEMBERS, optimizer=SGD)
    trainer = make_trainer(tmp_path)
    trainer.fit(model, data)
    assert data.ridge_calls == [12, 7]
    past = everything(data, 1)["past"]
    members = model.eval().network.members
    first, second, third = (member(past) for member in members)
    torch.testing.assert_close(model(past), (first + second + third) / 3)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, members[1](past[:, 4:]))
    torch.testing.assert_close(third.squeeze(-1), data.ridge(7) @ past[:, 5:])


def test_members_are_trained_each_by_itself():
    batch = {name: value[:5] for name, value in everything(TinySeries(), 0).items()}
    average = build(dropout=0.0, ensemble=[{}, {"last_rows": 8}], quantiles=[0.1, 0.5, 0.9])
    alone = build(dropout=0.0, quantiles=[0.1, 0.5, 0.9])
    alone.network.load_state_dict(average.network.members[0].state_dict())
    for model in (average, alone):
        model.train()
        model.batch_loss(batch).backward()
    member = average.network.members[0].parameters()
    for mean, own in zip(member, alone.network.parameters(), strict=True):
        torch.testing.assert_close(2 * mean.grad, own.grad)  # half of the loss is its own


def test_a_training_that_goes_on_keeps_its_skip(tmp_path):
    def fit(epochs, resume=None):
        model, data = build(skip="ridge", dropout=0.0, optimizer=SGD), TinySeries()
        options = {"data": data, "enable_checkpointing": True, "max_epochs": epochs}
        keep = ModelCheckpoint(tmp_path, filename=f"ridge{epochs}")
        run_fit(tmp_path, model, EMA(0.5), keep, resume=resume, **options)
        return model.state_dict(), data.ridge_calls

    straight, _ = fit(2)
    fit(1)
    resumed, calls = fit(2, tmp_path / "ridge1.ckpt")
    assert calls == []
    assert straight["network.skip.is_set"]
    assert are_equal(straight, resumed)
