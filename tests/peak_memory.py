"""How much memory tensors take at most while something runs, to the byte, on a CPU too."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def peak_tensor_bytes(action: Callable[[], object]) -> int:
    """Return the most bytes that tensors on the CPU take at once while something runs.

    They are counted by torch's allocator, so the number is the same each time. A process's resident memory also has
    what the allocator keeps for later, and buffers of the kernels. What was there before does not count, even if it is
    freed: to count weights too, make them in the action.

    Args:
        action: What runs; it is called once.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        action()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == 0]
    total = peak = 0
    for change in sorted(changes, key=lambda event: event["ts"]):
        total += change["args"]["Bytes"]
        peak = max(peak, total)
    return peak
