"""What each check says where something is wrong; drivers, compilers and control groups are made
up.
"""

from importlib import metadata

import pytest
import torch

from litlab.commands.doctor import checks, processes
from litlab.util import limits

PROJECT = """
[project]
requires-python = "<3"
dependencies = ["numpy<1", "nowhere>=2", "never; sys_platform == 'never'"]
"""
NUMPY = metadata.version("numpy")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="torch has a GPU")


def test_a_python_and_packages_that_do_not_fit_fail(tmp_path, monkeypatch):
    """Of a checkout; test_doctor.py has an installed distribution."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    monkeypatch.setattr(checks, "package_folder", lambda: tmp_path / "src/lab")
    [(status, text)] = checks.check_python()
    assert (status, "the project needs <3" in text) == ("FAIL", True)
    assert list(checks.check_packages()) == [
        ("FAIL", f"numpy is {NUMPY}, and the project needs numpy<1; pip install 'numpy<1'"),
        ("FAIL", "nowhere is missing, and the project needs nowhere>=2; pip install 'nowhere>=2'"),
    ]


@no_gpu
@pytest.mark.parametrize(
    ("script", "status", "text"),
    [
        ("echo H100; echo H100", "FAIL", "H100, H100, and torch is built for "),
        ("echo 'Failed to init'; exit 18", "FAIL", "nvidia-smi says: Failed to init"),
        ("echo H100", "warn", "H100, hidden by CUDA_VISIBLE_DEVICES; unset"),
        ("", "ok", "no GPU, or no driver for one"),
    ],
)
def test_why_torch_has_no_gpu(tmp_path, monkeypatch, script, status, text):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.version, "cuda", None)
    if status == "warn":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    _, line = checks.check_devices()
    assert (line[0], line[1].startswith(text)) == (status, True)


def test_the_tightest_control_group_counts(tmp_path, monkeypatch):
    (tmp_path / "job/step").mkdir(parents=True)
    (tmp_path / "cpu.max").write_text("400000 100000\n")
    (tmp_path / "job/cpu.max").write_text("150000 100000\n")
    (tmp_path / "job/step/cpu.max").write_text("max 100000\n")
    (tmp_path / "own").write_text("0::/job/step\n")
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "GROUP", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    assert checks.count_cores() == 1.5
    (status, text), *_ = checks.check_devices()
    assert (status, text.partition("; ")[2]) == ("warn", "export OMP_NUM_THREADS=1")
    monkeypatch.setattr(checks, "find_memory", lambda: (2**30, 2**30))
    [(status, text)] = checks.check_memory()
    assert (status, text.partition("; ")[0]) == ("warn", "1.0 of 1.0 GiB free")


def test_processes_that_take_too_long_fail(monkeypatch):
    monkeypatch.setattr(processes, "SECONDS", 0.1)
    [(status, line)] = processes.check_processes()
    assert (status, line.startswith("two of them have no sum")) == ("FAIL", True)


@pytest.mark.parametrize(
    ("script", "expected"),
    [("exit 0", "ok"), ("echo error: no headers >&2; exit 1", "warn"), (None, "warn")],
)
def test_the_compiler_is_tried(tmp_path, monkeypatch, script, expected):
    file = tmp_path / "c++"
    if script:
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    monkeypatch.setenv("CXX", str(file))
    [(status, text)] = checks.check_compiler()
    assert (status, "no headers" in text) == (expected, "headers" in (script or ""))
