"""Precision: what each kind of hardware gets, what stays in float32, and clipping with fused optimizers."""

import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import yaml
from lightning.pytorch import Callback
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from litlab.callbacks import EMA
from litlab.cli import precision
from litlab.cli.precision import (
    ClippingMixedPrecision,
    ExperimentTrainer,
    HalfWithFloat32Norms,
    auto_precision,
    find_devices,
)
from litlab.errors import UserError
from litlab.parallel import PipelineStrategy, ShardedStrategy
from litlab.util.device import has_fast_bfloat16
from tests.litlab.callbacks.tiny import Tiny, TinyData
from tests.litlab.conftest import CONFIGS

IMAGES = CONFIGS / "images.yaml"
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
NO_UNITS = "Precision: 32-true, as this CPU has no units for bfloat16"


@pytest.fixture(autouse=True)
def _hardware_is_asked_anew():
    has_fast_bfloat16.cache_clear()
    yield
    has_fast_bfloat16.cache_clear()


@pytest.fixture
def units(monkeypatch):
    """Gives this CPU units for bfloat16, or none."""
    return lambda there: monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"avx512_bf16": there}, raising=False
    )


@pytest.fixture
def gpus(monkeypatch):
    """Makes the machine one with GPUs of some compute capabilities."""

    def make(*majors: int) -> list[torch.device]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(majors))
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: SimpleNamespace(major=majors[gpu.index]))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: f"GPU {gpu.index}")
        return [torch.device("cuda", number) for number in range(len(majors))]

    return make


# auto


@pytest.mark.parametrize(
    ("majors", "result", "why"),
    [
        ((8, 9), "bf16-mixed", "as GPU 0 has units for bfloat16"),
        ((9, 7), "16-mixed", "as GPU 1 has units for float16, but not for bfloat16"),  # one precision for all
        ((6, 9), "32-true", "as GPU 0 has no units for bfloat16"),
    ],
)
def test_gpus(gpus, majors, result, why):
    assert auto_precision(gpus(*majors)) == (result, why)


@pytest.mark.parametrize("there", [True, False])
def test_apple(monkeypatch, there):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: there and version <= (14, 0))
    assert auto_precision([torch.device("mps")])[0] == ("bf16-mixed" if there else "32-true")


def test_devices_of_the_machine(gpus, monkeypatch):
    cpu = [torch.device("cpu")]
    assert gpus(8, 8) == find_devices("cuda")
    assert (find_devices("cpu"), find_devices("tpu")) == (cpu, [torch.device("meta")])
    for available, devices in ((torch.device("cuda"), gpus(8, 8)), (None, cpu)):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available, there=available: there)
        assert find_devices("auto") == find_devices("gpu") == devices


@pytest.mark.parametrize("there", [True, False])
def test_a_cpu_gets_what_it_has_units_for(units, caplog, there):
    units(there)
    trainer = ExperimentTrainer(precision="auto", accelerator="cpu", **QUIET)
    result, has = ("bf16-mixed", "has units") if there else ("32-true", "has no units")
    assert trainer.precision == result
    assert isinstance(trainer.precision_plugin, MixedPrecision) == there
    assert f"Precision: {result}, as this CPU {has} for bfloat16\n" in caplog.text


@pytest.mark.parametrize("strategy", ["fsdp2", "pipeline", ShardedStrategy(), PipelineStrategy()])
@pytest.mark.parametrize("setting", ["16-mixed", "auto"])
def test_strategies_that_divide_the_model_scale_no_gradients(monkeypatch, strategy, setting):
    monkeypatch.setattr(precision, "auto_precision", lambda _: ("16-mixed", "as a Tesla T4 has none for bfloat16"))
    with pytest.raises(UserError, match=r"^trainer\.precision: 16-mixed scales the loss"):
        ExperimentTrainer(precision=setting, accelerator="cpu", strategy=strategy, **QUIET)


def test_a_run_keeps_auto_and_what_it_became(run, short, tmp_path, units):
    units(False)
    series = CONFIGS / "series.yaml"
    done = run("fit", "--config", series, *short(series), "--trainer.precision=auto")
    assert done.code == 0, done.err
    assert done.err.count("Precision: ") == done.err.count(NO_UNITS) == 1
    folder = tmp_path / "lightning_logs/series/version_0"
    assert yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["precision"] == "auto"
    assert json.loads((folder / "provenance.json").read_text())["hardware"]["precision"] == "32-true"
    assert NO_UNITS in run("test", "--run", "last").err


@pytest.fixture
def _products_as_before():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.usefixtures("_products_as_before")
@pytest.mark.parametrize(
    ("tf32", "matmul", "convolutions"), [(None, "highest", True), (True, "high", True), (False, "highest", False)]
)
def test_tf32(tf32, matmul, convolutions):
    ExperimentTrainer(tf32=tf32, accelerator="cpu", **QUIET)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == (matmul, convolutions)


# bf16-true and 16-true


class Scale(nn.Module):
    """Has no norm's name, so its weight is converted."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))


class NormedBlock(nn.Module):
    """Has a norm's name, but nothing of its own."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)


@pytest.mark.parametrize(("setting", "half"), [("bf16-true", torch.bfloat16), ("16-true", torch.float16)])
def test_norms_keep_their_weights_statistics_and_arithmetic(setting, half):
    norm = nn.BatchNorm2d(4)
    norm.running_mean.fill_(1 / 3)  # which bfloat16 does not have
    network = nn.ModuleDict({"conv": nn.Conv2d(3, 4, 3), "norm": norm, "scale": Scale(), "block": NormedBlock()})
    plugin = HalfWithFloat32Norms(setting)
    plugin.convert_module(network)
    kinds = {name: dtype for name, dtype in types(network.state_dict()).items() if dtype.is_floating_point}
    in_norms = {name for name in kinds if name.startswith(("norm.", "block.norm."))}
    assert {name for name, dtype in kinds.items() if dtype == torch.float32} == in_norms
    assert set(kinds.values()) == {torch.float32, half}
    assert norm.running_mean[0] == torch.tensor(1 / 3)
    seen = []
    norm.register_forward_hook(lambda norm, inputs, output: seen.append(inputs[0].dtype))
    assert norm(network["conv"](torch.randn(2, 3, 5, 5, dtype=half))).dtype == half
    assert seen == [torch.float32]
    plugin.teardown()
    assert norm(torch.randn(2, 4, 5, 5)).dtype == torch.float32


def types(state):
    return {name: value.dtype for name, value in state.items()}


def test_a_run_resumes_and_is_tested_with_the_same_numbers(run, short, tmp_path):
    """The norms and, of all tensors, the average that is validated and tested stay in float32."""
    flags = [*short(IMAGES), "--trainer.precision=bf16-true", "--ema.decay=0.9", "--model.schedule=null"]
    flags += ["--model.optimizer=torch.optim.AdamW", "--model.optimizer.lr=0.01"]
    whole = run("fit", "--config", IMAGES, *flags, "--experiment=whole", "--trainer.max_epochs=2")
    assert whole.code == 0, whole.err
    assert run("fit", "--config", IMAGES, *flags, "--experiment=parts").code == 0
    resumed = run("fit", "--resume", "parts/version_0", "--trainer.max_epochs=2")
    assert resumed.code == 0, resumed.err

    files = [tmp_path / f"lightning_logs/{name}/version_0/checkpoints/last.ckpt" for name in ("whole", "parts")]
    one, other = (torch.load(file, weights_only=True) for file in files)
    states = [(one[key], other[key]) for key in ("state_dict", "current_model_state")]
    moments = (saved["optimizer_states"][0]["state"] for saved in (one, other))
    states += zip(*(list(by_number.values()) for by_number in moments), strict=True)
    for expected, state in states:
        assert types(expected) == types(state)
        assert all(torch.equal(value, state[name]) for name, value in expected.items())
    assert torch.bfloat16 in types(one["current_model_state"]).values()
    assert torch.bfloat16 not in types(one["state_dict"]).values()

    printed = next(line.split() for line in whole.out.splitlines() if "test/" in line)
    again = run("test", "--run", "whole/version_0", "--ckpt_path", "best")
    assert again.code == 0, again.err
    assert printed in [line.split() for line in again.out.splitlines()]


class Averages(Callback):
    """Notes the average before and after each validation."""

    def __init__(self, ema):
        self.ema, self.notes = ema, []

    def on_validation_start(self, *_):
        if self.ema.average is not None:
            self.notes.append({name: value.clone() for name, value in self.ema.average.items()})

    on_validation_end = on_validation_start


def test_a_validation_leaves_the_average_as_it_was():
    ema = EMA(0.9)
    averages = Averages(ema)
    settings = {"accelerator": "cpu", "max_epochs": 2, "callbacks": [ema, averages], **QUIET}
    ExperimentTrainer(precision="bf16-true", **settings).fit(Tiny(), TinyData())
    notes = averages.notes[2:]  # after the sanity check
    floats = [value for value in notes[-1].values() if value.dtype == torch.float32]
    assert any(not torch.equal(value, value.bfloat16().float()) for value in floats)
    for before, after in list(pairwise(notes))[::2]:
        assert all(torch.equal(value, after[name]) for name, value in before.items())


# Clipping in mixed precision


class Clipped(Tiny):
    """Notes the largest gradient of each step."""

    def __init__(self, fused: bool) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.fused, self.largest = fused, []

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, fused=self.fused)

    def on_before_zero_grad(self, optimizer):
        gradients = [parameter.grad.abs().max() for parameter in self.parameters() if parameter.grad is not None]
        self.largest += [float(max(gradients))] if gradients else []


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_bfloat16_is_clipped_with_a_fused_optimizer_as_without(tmp_path):
    fused, plain = Clipped(True), Clipped(False)
    settings = {"gradient_clip_val": 1e-3, "gradient_clip_algorithm": "value", "default_root_dir": tmp_path, **QUIET}
    for model in (fused, plain):
        trainer = ExperimentTrainer(accelerator="cpu", precision="bf16-mixed", max_epochs=1, **settings)
        trainer.fit(model, TinyData(20, 4))
    assert max(fused.largest) == pytest.approx(1e-3)
    for one, other in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_scaled_gradients_are_refused():
    plugin = ClippingMixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    weight = nn.Parameter(torch.ones(3))
    with pytest.raises(RuntimeError, match="Are you using a 'fused' optimizer"):
        plugin.clip_gradients(torch.optim.Adam([weight], fused=True), 1.0)
    weight.grad = torch.full((3,), 5.0)
    plugin.clip_gradients(torch.optim.Adam([weight]), 1.0)
    assert float(weight.grad.norm()) == pytest.approx(1.0)
