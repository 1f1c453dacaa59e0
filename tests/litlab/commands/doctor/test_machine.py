"""Limits of containers, memory, threads and folders."""

import os
import sys
from pathlib import Path

import pytest
import torch

from litlab.commands.doctor.cgroups import core_quota, memory_room
from litlab.commands.doctor.devices import threads
from litlab.commands.doctor.disk import disk, folder
from litlab.commands.doctor.line import GIB
from litlab.commands.doctor.machine import cores, memory, shared_memory, usable_cores


@pytest.fixture
def groups(tmp_path):
    """Writes the files of control groups; returns where they are mounted, and the file that names one's own."""

    def write(own: str, **files: str):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "mount" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "mount", tmp_path / "own"

    return write


def test_limits_of_version_2_are_those_of_the_tightest_group(groups):
    files = {
        "cpu.max": "max 100000\n", "pod/cpu.max": "150000 100000\n", "pod/box/cpu.max": "400000 100000\n",
        "pod/memory.max": "1000\n", "pod/memory.current": "900\n", "pod/box/memory.max": "500\n",
        "pod/box/memory.current": "100\n",
    }  # fmt: skip
    where = groups("0::/pod/box\n", **files)
    assert core_quota(*where) == 1.5
    assert memory_room(*where) == (1000, 100)


def test_limits_of_version_1_are_found_where_the_path_is_that_of_the_host(groups):
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": "4096\n", "memory/memory.usage_in_bytes": "1024\n",
    }  # fmt: skip
    where = groups("5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n", **files)
    assert core_quota(*where) == 0.5
    assert memory_room(*where) == (4096, 3072)


def test_without_limits_there_are_none(groups, tmp_path):
    files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "9" * 19}
    where = groups("2:cpu:/\n3:memory:/\n", **files)
    assert (core_quota(*where), memory_room(*where)) == (None, None)
    assert core_quota(tmp_path / "none", tmp_path / "none") is None


def test_a_quota_counts_as_far_as_it_is_below_the_cores():
    every = usable_cores(None)
    assert usable_cores(0.5) == 0.5
    assert usable_cores(every + 100) == every
    line = cores(0.5)
    assert line.what.startswith(f"0.5 of {os.cpu_count()}, by its container")
    assert line.facts["usable"] == 0.5


def test_more_threads_than_cores_are_a_warning():
    line = threads(0.5)  # the tests compute with one
    assert line.status == "ok"
    torch.set_num_threads(2)
    line = threads(1.0)
    assert (line.status, line.remedy) == ("warning", "export OMP_NUM_THREADS=1")


@pytest.mark.skipif(usable_cores(None) < 2, reason="there is one core")
def test_a_variable_that_leaves_cores_idle_is_a_warning(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    line = threads(2.0)
    assert line.status == "warning"
    assert line.what == "torch computes with 1 on 2 cores, as OMP_NUM_THREADS is 1"
    assert line.remedy.startswith("unset OMP_NUM_THREADS")


def test_little_memory_is_a_warning():
    assert memory((4 * GIB, GIB)).status == "warning"
    assert memory((4 * GIB, GIB)).what == "1.0 of 4.0 GiB free of the container's limit"
    assert memory(None).facts["limit_gib"] is None
    assert shared_memory((2**26, 0, 2**26)).remedy == "docker run --shm-size 8g, or --ipc host"
    assert shared_memory((8 * GIB, 0, 8 * GIB)).status == "ok"


def test_a_folder_that_is_made_later_is_looked_at_where_it_would_be(tmp_path):
    line = folder("data", tmp_path / "a/b")
    assert line.facts["writable"] is True
    assert line.facts["free_gib"] > 0
    assert not (tmp_path / "a").exists()


def test_a_folder_that_nothing_can_be_written_to_fails(tmp_path):
    tmp_path.chmod(0o555)
    line = folder("data", tmp_path / "data")
    tmp_path.chmod(0o755)
    assert line.status == "failed"
    assert line.what.endswith(f"{tmp_path} is no folder that can be written to")
    assert line.remedy == "choose another place"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_file_system_that_refuses_files_fails():
    line = folder("data", Path("/proc/self/fdinfo"))
    assert (line.status, line.facts["writable"]) == ("failed", False)


def test_the_places_are_those_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    lines = {line.name: line for line in disk()}
    assert lines["compile cache"].facts["path"] == str(tmp_path / "compiled")
    assert lines["runs"].facts["path"] == "lightning_logs"
    assert lines["temporary files"].status == "warning"
    assert lines["temporary files"].remedy.startswith(f"mkdir -p {tmp_path}/gone")
