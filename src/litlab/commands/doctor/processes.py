"""Whether two processes of this machine can compute together.

``python -m litlab.commands.doctor.processes STORE RANK`` is one of them.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from tempfile import TemporaryDirectory
from typing import Any

from litlab.commands.doctor.checks import FAIL, OK, Line
from litlab.util.imports import pausing_garbage_collection

SIZE = 2
SECONDS = 60.0  # that they may take: most of it for importing torch from a slow disk
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
REMEDY = (
    f"export GLOO_SOCKET_IFNAME={LOOPBACK}, or add '127.0.0.1 HOSTNAME' to /etc/hosts; "
    "on GPUs NCCL_DEBUG=INFO says more"
)


def check_processes() -> Iterator[Line]:
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, f"{folder}/store"]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        ranks = [
            subprocess.Popen([*command, str(rank)], **pipes, text=True, errors="replace")
            for rank in range(SIZE)
        ]
        try:
            outputs = [rank.communicate(timeout=SECONDS)[0] for rank in ranks]
        except subprocess.TimeoutExpired:
            for rank in ranks:
                rank.kill()
                rank.communicate()
            yield FAIL, f"two of them have no sum of a tensor in {SECONDS:g} s; {REMEDY}"
            return

    if any(rank.returncode for rank in ranks):
        errors = re.findall(r"^[\w.]+Error: .*", "".join(outputs), re.MULTILINE)
        yield FAIL, f"two of them can't sum a tensor ({''.join(errors[:1])}); {REMEDY}"
    else:
        yield OK, f"two of them have summed a tensor with {outputs[0].split()[-1]}"


def sum_tensor(store: str, rank: int) -> None:
    """Sum a tensor over all processes, which find each other by a file, and print the backend."""
    with pausing_garbage_collection():
        import torch
        import torch.distributed as dist

    device = torch.device("cpu")
    if torch.cuda.device_count() >= SIZE:
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
    backend = "gloo" if device.type == "cpu" else "nccl"
    timeout = timedelta(seconds=SECONDS / 2)
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=SIZE, timeout=timeout
    )
    tensor = torch.ones(1024, device=device)
    dist.all_reduce(tensor)
    if not (tensor == SIZE).all():
        raise RuntimeError(f"the sum is {tensor[0].item()} instead of {SIZE}")
    dist.destroy_process_group()
    print(backend)


if __name__ == "__main__":
    sum_tensor(sys.argv[1], int(sys.argv[2]))
