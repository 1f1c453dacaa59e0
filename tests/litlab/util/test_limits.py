"""What control groups leave of the memory."""

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
