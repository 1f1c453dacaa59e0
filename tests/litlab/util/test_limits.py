"""What control groups leave of memory and cores; doctor's tests have version 2 of cores."""

import psutil
import pytest

from litlab.util import limits

FILES = {
    "2": ("", "memory.max", "memory.current", "inactive_file 100\n"),
    "1": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file 100\n"),
}


@pytest.mark.parametrize("version", FILES)
@pytest.mark.parametrize("path", ["/", "/job/step"])
@pytest.mark.parametrize(("limit", "free"), [(1000, 700), (300, 0), (2**70, None)])
def test_the_limit_of_a_container_counts(tmp_path, monkeypatch, version, path, limit, free):
    root, *names, stat = FILES[version]
    folder = tmp_path / root / path.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip([*names, "memory.stat"], [limit, 400, stat], strict=True):
        (folder / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(f"0:{root}:{path}\n3:pids:/else\n")
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "GROUP", tmp_path / "own")
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    expected = (memory.total, memory.available) if free is None else (limit, free)
    assert limits.find_memory() == expected


def test_the_cores_of_a_group_of_version_1(tmp_path, monkeypatch):
    for group, quota in (("", -1), ("job", 150_000)):
        folder = tmp_path / "cpu,cpuacct" / group
        folder.mkdir(parents=True)
        (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "own").write_text("4:cpu,cpuacct:/job\n")
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "GROUP", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(8), raising=False)
    assert limits.count_cores() == 1.5
