"""The gradient noise scale of a fit, which does not notice that it is measured."""

import csv
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import FSDPStrategy
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from litlab.callbacks import GradientNoiseScale
from litlab.callbacks.noise_scale_curve import next_point
from litlab.checkpointing.io import load_torch_file
from litlab.errors import UserError
from litlab.tasks import Forecaster, Regressor
from tests.litlab.callbacks.test_gradient_moments import SGD, Shift, classifier, cnn
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.litlab.checkpointing.in_process import Draws, fit
from tests.litlab.tasks.tiny_series import TinySeries
from tests.recorder import Recorder

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty"),
]


class Branch(nn.Module):
    """Takes one of two ways, which vmap refuses."""

    def forward(self, inputs):
        return inputs if inputs.sum() > 0 else 2 * inputs


class DrawsApart(Draws):
    """`Draws`, whose network normalises over batches, with one that can be computed sample by sample."""

    def __init__(self, stop=None) -> None:
        super().__init__(stop)
        del self.network[1]


class DrawsBranch(DrawsApart):
    """The same with a branch, after the dropout has drawn."""

    def __init__(self, stop=None) -> None:
        super().__init__(stop)
        self.network.append(Branch())


@pytest.mark.parametrize(
    ("module", "why"),
    [(DrawsApart, None), (DrawsBranch, "vmap refuses"), (Draws, "network.1 (BatchNorm1d)")],
)
def test_the_training_does_not_notice_and_a_resumed_run_has_the_same_points(tmp_path, caplog, module, why):
    """With dropout, accumulation, what the model itself draws, and a run that is interrupted twice."""
    plain, _ = fit(tmp_path / "plain", module=module)
    whole = GradientNoiseScale(every_n_steps=2)
    watched, _ = fit(tmp_path / "watched", module=module, callbacks=[whole])
    assert ("measures gradients of micro-batches instead of single samples" in caplog.text) == (why is not None)
    assert (why or "") in caplog.text
    assert plain.drawn == watched.drawn
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert [(point.step, point.batch) for point in whole.points] == [(2, 8), (4, 8)]

    fit(tmp_path / "cut", stop=("batch", 0, 4), module=module, callbacks=[GradientNoiseScale(every_n_steps=2)])
    cut = {"resume": True, "module": module}
    fit(tmp_path / "cut", stop=("batch", 1, 4), callbacks=[GradientNoiseScale(every_n_steps=2)], **cut)
    state = load_torch_file(tmp_path / "cut/last.ckpt")["callbacks"]["GradientNoiseScale"]
    assert state["points"].shape == (2, 4)
    resumed = GradientNoiseScale(every_n_steps=2)
    fit(tmp_path / "cut", callbacks=[resumed], **cut)
    assert resumed.points == whole.points


@pytest.mark.parametrize(
    ("network", "settings", "says"),
    [
        (cnn(), {}, ""),
        (Tiny().network, {}, "network.1 (BatchNorm2d) normalises over a batch"),
        (nn.Sequential(*cnn(), Branch()), {}, "torch.func.vmap refuses the network (vmap: It looks like"),
        (cnn(), {"mixup": 0.2, "image_shape": (3, 8, 8)}, "depends on the others of its batch (couples_samples)"),
    ],
)
def test_what_can_not_be_computed_sample_by_sample_is_in_micro_batches(tmp_path, caplog, network, settings, says):
    callback, logger = GradientNoiseScale(every_n_steps=2), CSVLogger(tmp_path)
    model = classifier(network, **settings)
    trainer = make_trainer(tmp_path, max_epochs=2, callbacks=[callback], logger=logger)
    trainer.fit(model, TinyData(samples=24, batch_size=8))
    assert says in caplog.text
    assert ("measures gradients of micro-batches instead of single samples" in caplog.text) == bool(says)
    assert [(point.step, point.batch) for point in callback.points] == [(2, 8), (4, 8)]
    with (tmp_path / "lightning_logs/version_0/metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["noise_scale/trace"]]
    logged = [(int(row["step"]), float(row["noise_scale/trace"])) for row in rows]
    assert logged == [(point.step, pytest.approx(point.trace)) for point in callback.points]


def test_a_recurrent_forecaster_and_a_regressor(tmp_path, caplog):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(2, 6, batch_first=True), nn.Linear(6, 12)

        def forward(self, past, calendar=None):
            return self.head(self.rnn(past)[0][:, -1]).view(-1, 6, 2, 1)

    callback = GradientNoiseScale(every_n_steps=1)
    model = Forecaster(Last(), horizon=6, num_targets=2, optimizer=SGD)
    make_trainer(tmp_path, callbacks=[callback], limit_val_batches=0).fit(model, TinySeries())
    assert "because network.rnn (nn.LSTM) has no rule for torch.func.vmap" in caplog.text
    assert [point.step for point in callback.points] == [1, 2, 3]  # the last of 5 batches has 3 samples, too few

    callback = GradientNoiseScale(every_n_steps=1)
    data = DataLoader(TensorDataset(torch.randn(12, 3), torch.randn(12)), batch_size=5)
    model = Regressor(nn.Linear(3, 1), target_names=["y"], optimizer=SGD)
    make_trainer(tmp_path, callbacks=[callback]).fit(model, data, data)
    assert [point.batch for point in callback.points] == [5, 2]


def test_the_loss_is_computed_in_the_precision_of_the_trainer(tmp_path):
    kinds = []
    model = classifier(cnn())
    model.network[0].register_forward_hook(lambda layer, inputs, output: kinds.append(output.dtype))
    trainer = make_trainer(
        tmp_path, precision="bf16-mixed", max_steps=2, callbacks=[GradientNoiseScale(1)], limit_val_batches=0
    )
    trainer.fit(model, TinyData(8))
    assert set(kinds) == {torch.bfloat16}
    assert len(kinds) == 2 + 2  # two steps, one try, one measurement


def test_ranks_average_what_they_have(tmp_path, monkeypatch):
    """The other rank has a batch of one sample more, and estimates of its own; once none."""
    others = iter([[3.0, 5.0, 1.0, 5.0], [0.0, 0.0, 0.0, 1.0]])
    mine = []

    def reduce(values, reduce_op):
        if values.shape != (4,):  # the length of the data
            return values
        assert reduce_op == "sum"
        mine.append(values.tolist())
        return values + torch.tensor(next(others))

    callback = GradientNoiseScale(1)
    trainer = make_trainer(tmp_path, callbacks=[callback])
    monkeypatch.setattr(trainer.strategy, "reduce", reduce)
    trainer.fit(Shift(3), DataLoader(list(torch.randn(12, 3).double()), batch_size=4))
    first, second = callback.points
    assert (first.batch, second.batch) == (9, 5)
    assert (first.grad_sq, first.trace) == pytest.approx(((mine[0][0] + 3) / 2, (mine[0][1] + 5) / 2))
    expected = next_point([first], 2, 5, mine[1][0], mine[1][1])
    assert second == pytest.approx(expected)


# What is refused, and what is left


def test_what_is_refused(tmp_path):
    def refused(model, line, data):
        with pytest.raises(UserError, match=line):
            make_trainer(tmp_path, callbacks=[GradientNoiseScale()], limit_val_batches=0).fit(model, data)

    refused(Tiny(), r"^trainer\.callbacks: .* model\.batch_loss\(batch\), .* Tiny does not have it", TinyData())
    refused(classifier(nn.SyncBatchNorm(3)), r"^trainer\.sync_batchnorm: .*; set it to false, or leave", TinyData())
    uneven = DataLoader([0, 0], collate_fn=lambda _: (torch.ones(3), torch.ones(2, 1)))
    refused(Shift(3), r"^trainer\.callbacks: .* differ in their first dimension \(.*\(3,\), .*\(2, 1\)\)", uneven)
    trainer: Any = SimpleNamespace(strategy=object.__new__(FSDPStrategy))
    with pytest.raises(UserError, match=r"^trainer\.strategy: FSDPStrategy shards the weights, .* or leave"):
        GradientNoiseScale().on_fit_start(trainer, classifier(cnn()))


def test_a_mistake_in_the_model_is_not_hidden(tmp_path):
    class Wrong(Shift):
        def batch_loss(self, batch):
            return (batch @ torch.ones(7).double()).mean()  # of another size

        def training_step(self, batch, batch_idx):
            return super().batch_loss(batch)

    data = DataLoader(list(torch.randn(12, 5).double()), batch_size=4)
    with pytest.raises(RuntimeError, match="size mismatch"):
        make_trainer(tmp_path, callbacks=[GradientNoiseScale(1)]).fit(Wrong(5), data)


def test_a_fit_too_short_to_measure_says_so(tmp_path, caplog):
    make_trainer(tmp_path, callbacks=[GradientNoiseScale()]).fit(classifier(cnn()), TinyData())
    assert "nothing was measured in 3 steps: it takes a batch every 50 steps" in caplog.text
    assert "lower trainer.callbacks.GradientNoiseScale.every_n_steps" in caplog.text


def test_what_is_left_of_a_run(fit_images, tmp_path):
    overlay = "trainer: {callbacks+: [{class_path: GradientNoiseScale}]}"
    logger = "--trainer.logger={class_path: tests.recorder.Recorder}"
    done = fit_images(
        "fit", "--config", overlay, "--trainer.callbacks.every_n_steps=2", "--trainer.accumulate_grad_batches=2",
        "--trainer.max_epochs=4", "--trainer.limit_val_batches=1", "--test_after_fit=false", logger
    )  # fmt: skip
    assert done.code == 0, done.err
    folder = tmp_path / "lightning_logs/images/version_0"
    with (folder / "noise_scale.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["batch"]) for row in rows] == [("2", "80"), ("4", "80"), ("6", "80")]
    for row in rows:
        ratio = float(row["trace"]) / float(row["grad_sq"])
        assert (float(row["noise_scale"]) if row["noise_scale"] else -1) == pytest.approx(max(ratio, -1), rel=1e-4)
    pixels = Recorder.last.pictures["fit/noise_scale"]
    with Image.open(folder / "noise_scale.png") as image:
        assert np.array_equal(np.asarray(image), pixels)
    assert "gradient noise scale: " in done.err
    assert done.err.count("GradientNoiseScale: measures gradients of micro-batches") == 1
