"""Precision: what each kind of hardware gets, what stays in float32, and clipping with fused
optimizers; and how often steps are logged.
"""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from litlab.cli import precision
from litlab.cli.precision import ExperimentTrainer, HalfWithFloat32Norms, choose_precision
from litlab.errors import UserError
from litlab.parallel import ShardedStrategy
from litlab.util.device import has_fast_bfloat16
from tests.litlab.callbacks.tiny import Tiny, TinyData

LOUD = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
QUIET = {"accelerator": "cpu", **dict.fromkeys(LOUD, False)}


@pytest.fixture(autouse=True)
def _hardware_is_asked_anew():
    has_fast_bfloat16.cache_clear()
    yield
    has_fast_bfloat16.cache_clear()


# auto


@pytest.mark.parametrize(("major", "result"), [(8, "bf16-mixed"), (7, "16-mixed"), (6, "32-true")])
def test_gpus(monkeypatch, major, result):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(major=major))
    assert choose_precision(torch.device("cuda", 0))[0] == result


@pytest.mark.parametrize(
    ("feature", "result", "has"),
    [("bf16", "bf16-mixed", "has units"), ("avx512_f", "32-true", "has no units")],
)
def test_a_cpu_gets_what_it_has_units_for(monkeypatch, caplog, feature, result, has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {feature: True}, raising=False)
    trainer = ExperimentTrainer(precision="auto", **QUIET)
    assert trainer.precision == trainer.precision_plugin.precision == result
    assert f"Precision: {result}, as this CPU {has} for bfloat16\n" in caplog.text


@pytest.mark.parametrize(
    ("setting", "strategy"), [("auto", "fsdp2"), ("16-mixed", ShardedStrategy())]
)
def test_strategies_that_divide_the_model_scale_no_gradients(monkeypatch, strategy, setting):
    monkeypatch.setattr(
        precision, "choose_precision", lambda _: ("16-mixed", "as a Tesla T4 has none for bfloat16")
    )
    with pytest.raises(UserError, match=r"^trainer\.precision: 16-mixed scales the loss"):
        ExperimentTrainer(precision=setting, strategy=strategy, **QUIET)


def test_tf32(monkeypatch):
    products = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", products.append)
    for tf32, convolutions in ((None, True), (False, False), (True, True)):
        ExperimentTrainer(tf32=tf32, **QUIET)
        assert torch.backends.cudnn.allow_tf32 is convolutions
    assert products == ["highest", "high"]


def test_a_cpu_trains_depthwise_convolutions_in_float32(caplog):
    depthwise = nn.Conv2d(4, 8, 3, groups=4)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), depthwise, nn.Conv2d(8, 4, 1, groups=2))
    plugin = ExperimentTrainer(precision="bf16-mixed", **QUIET).precision_plugin
    seen = []
    plugin.convert_module(network)
    for layer in network:
        layer.register_forward_hook(lambda layer, inputs, output: seen.append(output.dtype))
    images = torch.randn(2, 3, 8, 8)
    half, single = torch.bfloat16, torch.float32

    with plugin.train_step_context():
        network(images)
        with torch.no_grad():  # where bfloat16 is the faster one
            network(images)
    network(images)
    assert seen == [half, single, half, half, half, half, single, single, single]
    with plugin.train_step_context():
        with pytest.raises(RuntimeError, match="channels"):
            depthwise(images)
        assert torch.is_autocast_enabled("cpu")
        plugin.teardown()
        assert depthwise(network[0](images)).dtype == half

    # The advice, and that following it ends it
    assert "channels_last: true" in caplog.text
    caplog.clear()
    plugin.convert_module(network.to(memory_format=torch.channels_last))
    assert "channels_last" not in caplog.text


# bf16-true and 16-true


def test_norms_keep_their_weights_statistics_and_arithmetic():
    norm, conv, half = nn.BatchNorm2d(4), nn.Conv2d(3, 4, 3), torch.bfloat16
    norm.running_mean.fill_(1 / 3)  # which bfloat16 does not have
    plugin = HalfWithFloat32Norms("bf16-true")
    plugin.convert_module(nn.Sequential(conv, nn.Sequential(norm)))
    assert {weight.dtype for weight in conv.parameters()} == {half}
    assert {norm.weight.dtype, norm.running_mean.dtype} == {torch.float32}
    assert norm.running_mean[0] == torch.tensor(1 / 3)
    seen = []
    norm.register_forward_hook(lambda norm, inputs, output: seen.append(inputs[0].dtype))
    assert norm(conv(torch.randn(2, 3, 5, 5, dtype=half))).dtype == half
    assert seen == [torch.float32]
    plugin.teardown()
    assert norm(torch.randn(2, 4, 5, 5)).dtype == torch.float32


def test_bfloat16_is_clipped_with_a_fused_optimizer_too():
    trainer = ExperimentTrainer(precision="bf16-mixed", **QUIET)
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.full((3,), 5.0)
    trainer.precision_plugin.clip_gradients(torch.optim.SGD([weight], lr=0.1, fused=True), 1.0)
    assert float(weight.grad.norm()) == pytest.approx(1.0)


# The steps that are logged


@pytest.mark.parametrize(("batches", "every"), [(5, 1), (30, 3)])
def test_an_epoch_has_its_points_however_short_it_is(tmp_path, batches, every):
    quiet = QUIET | {"logger": CSVLogger(tmp_path), "limit_val_batches": 0}
    trainer = ExperimentTrainer(max_epochs=1, **quiet)
    trainer.fit(Tiny(), TinyData(samples=batches, batch_size=1))  # a warning would be an error
    assert trainer.log_every_n_steps == every
