"""`trainer.precision: auto`: what each kind of hardware gets, and what a command says about it."""

import json
from types import SimpleNamespace

import pytest
import torch
import yaml
from lightning.pytorch.plugins import MixedPrecision

from litlab.cli import precision
from litlab.cli.precision import ExperimentTrainer, auto_precision, find_devices
from litlab.errors import UserError
from litlab.parallel import PipelineStrategy, ShardedStrategy
from litlab.util.device import has_fast_bfloat16
from tests.litlab.conftest import CONFIGS

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
CPU = torch.device("cpu")
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
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: SimpleNamespace(major=majors[gpu.index]))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: f"GPU {gpu.index}")
        return [torch.device("cuda", number) for number in range(len(majors))]

    return make


@pytest.mark.parametrize(
    ("majors", "wanted", "why"),
    [
        ((9,), "bf16-mixed", "as GPU 0 has units for bfloat16"),
        ((8, 8), "bf16-mixed", "as GPU 0 has units for bfloat16"),
        ((7,), "16-mixed", "as GPU 0 has units for float16, but not for bfloat16"),
        ((9, 7), "16-mixed", "as GPU 1 has units for float16, but not for bfloat16"),  # one precision for all
        ((6,), "32-true", "as GPU 0 has no units for bfloat16"),
        ((6, 9), "32-true", "as GPU 0 has no units for bfloat16"),
    ],
)
def test_gpus(gpus, majors, wanted, why):
    assert auto_precision(gpus(*majors)) == (wanted, why)


@pytest.mark.parametrize("there", [True, False])
def test_apple(monkeypatch, there):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: there and version <= (14, 0))
    assert auto_precision([torch.device("mps")])[0] == ("bf16-mixed" if there else "32-true")


def test_devices_of_the_machine_are_asked(gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_devices("cuda") == gpus(8, 8)
    assert find_devices("cpu") == [CPU]
    assert find_devices("tpu") == [torch.device("meta")]
    for available, wanted in ((torch.device("cuda"), gpus(8, 8)), (None, [CPU])):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available, there=available: there)
        assert find_devices("auto") == find_devices("gpu") == wanted


@pytest.mark.parametrize("there", [True, False])
def test_a_cpu_gets_what_it_has_units_for(units, caplog, there):
    units(there)
    trainer = ExperimentTrainer(precision="auto", accelerator="cpu", **QUIET)
    wanted = "bf16-mixed" if there else "32-true"
    assert trainer.precision == wanted
    assert isinstance(trainer.precision_plugin, MixedPrecision) == there
    said = "has units" if there else "has no units"
    assert f"Precision: {wanted}, as this CPU {said} for bfloat16\n" in caplog.text


@pytest.mark.parametrize("strategy", ["fsdp2", "pipeline", ShardedStrategy(), PipelineStrategy()])
def test_strategies_that_divide_the_model_scale_no_gradients(monkeypatch, strategy):
    with pytest.raises(UserError, match=r"^trainer\.precision: 16-mixed scales the loss"):
        ExperimentTrainer(precision="16-mixed", accelerator="cpu", strategy=strategy, **QUIET)
    monkeypatch.setattr(precision, "auto_precision", lambda _: ("16-mixed", "as a Tesla T4 has none for bfloat16"))
    with pytest.raises(UserError, match=r"^trainer\.precision: 16-mixed scales the loss"):
        ExperimentTrainer(precision="auto", accelerator="cpu", strategy=strategy, **QUIET)


def test_a_run_keeps_auto_and_what_it_became(run, short, tmp_path, units):
    units(False)
    fit = ["fit", "--config", CONFIGS / "series.yaml", *short(CONFIGS / "series.yaml"), "--trainer.precision=auto"]
    assert NO_UNITS in run(*fit, "--check").err
    first = run(*fit)
    assert first.code == 0, first.err
    assert first.err.count("Precision: ") == 1
    assert NO_UNITS in first.err
    folder = tmp_path / "lightning_logs/series/version_0"
    assert yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["precision"] == "auto"
    made = json.loads((folder / "provenance.json").read_text())
    assert made["hardware"]["precision"] == "32-true"
    assert NO_UNITS in run("test", "--run", "last").err


@pytest.fixture
def _products_as_before():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.usefixtures("_products_as_before")
@pytest.mark.parametrize(("wanted", "matmul", "convolutions"), [(True, "high", True), (False, "highest", False)])
def test_tf32(wanted, matmul, convolutions):
    ExperimentTrainer(accelerator="cpu", **QUIET)  # null leaves torch's own settings
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == ("highest", True)
    ExperimentTrainer(tf32=wanted, accelerator="cpu", **QUIET)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == (matmul, convolutions)
