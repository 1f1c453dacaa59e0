"""Whether two processes of this machine can compute together."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from litlab.commands.doctor.line import FAILED, OK, PROCESSES, WARNING, Line
from litlab.util.text import some

SIZE = 2
SECONDS = 60.0  # that they may take: most of it for importing torch on a slow disk
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def processes() -> Iterator[Line]:
    """Let two processes sum a tensor, with NCCL on two GPUs, else with gloo."""
    yield all_reduce(SECONDS)
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError as error:
        name = socket.gethostname()
        what = f"{name} has no address ({error.strerror}): gloo may hang"
        remedy = f"add '127.0.0.1 {name}' to /etc/hosts, or export GLOO_SOCKET_IFNAME={LOOPBACK}"
        yield Line(PROCESSES, "host name", WARNING, what, remedy, {"name": name})


def all_reduce(seconds: float) -> Line:
    """Sum a tensor over two processes.

    Args:
        seconds: How long they may take.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(SIZE)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "litlab.commands.doctor.rank"],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for rank in range(SIZE)
    ]
    end, said, hung = time.monotonic() + seconds, [], False
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=max(0.1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            hung = True
            for other in ranks:
                other.kill()
            said.append(rank.communicate())
    backend = said[0][0].split()[-1:]  # NCCL_DEBUG prints more
    if all(rank.returncode == 0 for rank in ranks):
        what = f"two processes have summed a tensor with {backend[0]}"
        return Line(PROCESSES, "all-reduce", OK, what, facts={"backend": backend[0], "works": True, "errors": []})
    errors = [line.strip() for _, noise in said for line in noise.splitlines() if "Error" in line]
    errors.sort(key=lambda line: "timed out" in line.lower())  # one that waits for the other has less to say
    what = f"no sum in {seconds:g} s" if hung else "two processes can't sum a tensor"
    interfaces = some([name for _, name in socket.if_nameindex()])
    remedy = (
        f"export GLOO_SOCKET_IFNAME={LOOPBACK} (there are {interfaces}); on GPUs set NCCL_DEBUG=INFO in a fit to see "
        "more, and try NCCL_P2P_DISABLE=1"
    )
    facts = {"backend": None, "works": False, "errors": errors}
    return Line(PROCESSES, "all-reduce", FAILED, f"{what}{f': {errors[0]}' if errors else ''}", remedy, facts)
