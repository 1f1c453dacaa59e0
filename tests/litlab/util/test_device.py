"""The memory of this process."""

import sys

import pytest

from tests.processes import Python

FAULTS = """
import resource
import torch
from litlab.util.device import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(2**24)  # 64 MiB: 16,384 pages, or fewer where they are huge
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.ones(2**24)
print(faults(), keep_freed_memory(), [faults() for _ in range(5)][-1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is a setting of glibc")
def test_freed_memory_is_kept(tmp_path):
    (tmp_path / "faults.py").write_text(FAULTS)
    before, kept, after = Python(tmp_path / "faults.py", cwd=tmp_path).communicate()[0].split()
    if kept == "False":
        pytest.skip("this libc has no mallopt")
    assert 2 * int(after) < int(before)
    assert int(after) < 100
