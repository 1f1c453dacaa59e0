"""GPUs that the system has and torch can't use: drivers and buses are made up, torch is the one that is installed."""

import pytest
import torch

from litlab.commands.doctor.devices import gpu, triton, unused
from litlab.commands.doctor.gpus import Gpus, find_gpus, gpus
from litlab.commands.doctor.rates import has_tf32
from litlab.util.device import has_fast_bfloat16, has_tensor_cores

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a GPU")


@pytest.fixture
def bus(tmp_path):
    """Makes the folder of a bus with a network card and devices of some vendors and classes."""

    def make(*devices: tuple[str, str]):
        for number, (vendor, kind) in enumerate([("0x8086", "0x020000"), *devices]):
            place = tmp_path / f"bus/0000:0{number}:00.0"
            place.mkdir(parents=True)
            (place / "vendor").write_text(f"{vendor}\n")
            (place / "class").write_text(f"{kind}\n")
        return tmp_path / "bus"

    return make


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts a program called nvidia-smi into the only folder of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def write(script: str) -> None:
        program = tmp_path / "bin/nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return write


def test_a_machine_without_gpus_has_none(bus, smi, tmp_path):
    assert find_gpus(bus(), tmp_path) == Gpus()
    assert find_gpus(tmp_path / "no bus", tmp_path) == Gpus()


def test_the_driver_tells_names_and_version(bus, smi, tmp_path):
    smi("echo 'NVIDIA H100, 80 GB, 580.65.06'; echo 'NVIDIA H100, 80 GB, 580.65.06'")
    found = find_gpus(bus(), tmp_path)
    assert found == Gpus("NVIDIA", ("NVIDIA H100, 80 GB",) * 2, "580.65.06")
    assert str(found) == "2 x NVIDIA H100, 80 GB"
    (line,) = gpus()
    assert line.status == "ok"
    assert line.what.startswith("2 x NVIDIA H100, 80 GB, driver 580.65.06")


def test_a_gpu_whose_driver_fails_is_named_with_what_the_driver_says(bus, smi, tmp_path):
    smi("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    found = find_gpus(bus(("0x10de", "0x030200")), tmp_path)
    assert (found.names, found.driver) == (("NVIDIA at 0000:01:00.0",), None)
    assert found.trouble == "Failed to initialize NVML: Driver/library version mismatch"


def test_a_gpu_without_a_driver_is_found_on_the_bus(bus, smi, tmp_path):
    found = find_gpus(bus(("0x10de", "0x030000"), ("0x10de", "0x040300")), tmp_path)
    assert found.names == ("NVIDIA at 0000:01:00.0",), "its sound device is none"
    assert "not installed" in found.trouble
    assert unused(found) is None, "the line on the driver has said it"


def test_the_kernel_module_tells_the_driver_where_its_program_is_missing(bus, smi, tmp_path):
    module = tmp_path / "module"
    (module / "gpus/0000:01:00.0").mkdir(parents=True)
    (module / "gpus/0000:01:00.0/information").write_text("Model: \t\t NVIDIA A100\nIRQ: 1\n")
    (module / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\nGCC 12.2.0\n")
    assert find_gpus(bus(), module) == Gpus("NVIDIA", ("NVIDIA A100",), "550.54.15")


@no_gpu
def test_a_gpu_that_torch_can_not_use_fails_with_the_reason(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    line = unused(Gpus("NVIDIA", ("NVIDIA H100",), "580.65.06"))
    assert line is not None
    assert line.status == "failed"
    assert ("torch can't use them: " if torch.version.cuda else "this torch is built for ") in line.what
    assert line.remedy


@no_gpu
def test_gpus_that_a_variable_hides_are_a_warning(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    line = unused(Gpus("NVIDIA", ("NVIDIA H100",), "580.65.06"))
    assert line is not None
    assert (line.status, line.remedy) == ("warning", "unset CUDA_VISIBLE_DEVICES")


@no_gpu
@pytest.mark.skipif(bool(torch.version.hip), reason="this torch is AMD's")
def test_a_gpu_of_amd_is_a_note_where_torch_is_not_built_for_it(bus, smi, tmp_path):
    found = find_gpus(bus(("0x1002", "0x030000")), tmp_path)
    line = unused(found)
    assert found.vendor == "AMD"
    assert line is not None
    assert line.status == "note"
    assert "not for AMD's GPUs" in line.what


@no_gpu
def test_a_gpu_that_does_not_answer_fails():
    line = gpu(0)
    assert (line.name, line.status) == ("cuda:0", "failed")
    assert line.what.startswith("torch can't use it: ")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_measured_in_each_precision_that_it_has_units_for():
    line, device = gpu(0), torch.device("cuda", 0)
    wanted = {"tf32": has_tf32, "bfloat16": has_fast_bfloat16, "float16": has_tensor_cores}
    assert line.status in ("ok", "warning")
    assert set(line.facts["gflops"]) == {"float32", *(name for name, has in wanted.items() if has(device))}
    assert line.facts["total_gib"] >= line.facts["free_gib"] > 0
    assert line.facts["copy_gb_s"] > 0
    assert triton().status == "ok"


def test_a_machine_without_gpus_misses_nothing():
    assert unused(Gpus()) is None
