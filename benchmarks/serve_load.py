"""Requests per second and waiting times of a server, beside the same model in a bare loop.

python benchmarks/serve_load.py lightning_logs/text/version_0/exported/onnx
lightning_logs/cifar/version_0 python benchmarks/serve_load.py --requests 200 RUN     shorter

For each run or folder of an export: 1, 8 and 32 clients that send the next request when they have
the answer to the last; the server's defaults, on loopback, on the cores that the clients use, too.
The bare loop calls the model with one sample at a time, already read, on the same number of
threads, and once more with 32 samples at a time. "read" is the loop with reading the request and
writing the answer, as the server does. "workers" is a server with as many workers as there are
cores, each with one thread. Sides are measured in turns.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import save, summarise
from PIL import Image

from litlab.commands.serve.model import load_model
from litlab.util.team import use_package

CLIENTS = (1, 8, 32)
WORDS = (
    "market",
    "game",
    "court",
    "phone",
    "river",
    "minister",
    "league",
    "oil",
    "software",
    "rain",
)
DIFFERENT = 64  # requests, sent again and again


def make_requests(kind: str) -> list[dict[str, str]]:
    """Return what is sent to a model that takes texts or images."""
    rng = np.random.default_rng(0)
    if kind == "texts":
        return [
            {"text": " ".join(rng.choice(WORDS, int(rng.integers(10, 60))))}
            for _ in range(DIFFERENT)
        ]
    if kind != "images":
        raise SystemExit("give runs of texts or images")
    requests = []
    for _ in range(DIFFERENT):
        stream = io.BytesIO()
        pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(stream, "JPEG", quality=90)
        requests.append({"image": base64.b64encode(stream.getvalue()).decode()})
    return requests


class Server:
    """``python -m project serve`` on a free port.

    Args:
        run: What is served.
        arguments: More of the command line.
    """

    def __init__(self, run: str, *arguments: str) -> None:
        command = [
            sys.executable,
            "-m",
            "project",
            "serve",
            "--run",
            run,
            "--port",
            "0",
            *arguments,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = re.search(r":(\d+)$", self.process.stdout.readline().strip())
        if address is None:
            raise SystemExit("the server did not start")
        self.port = int(address[1])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


async def run_client(port: int, bodies: list[bytes], seconds: list[float]) -> None:
    """Send requests over one connection; as little of a client as there can be, since it uses the
    same cores.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        start = time.perf_counter()
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert length is not None
        await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - start)
    writer.close()


def load_server(server: Server, bodies: list[bytes], clients: int) -> dict[str, float]:
    """Let clients share requests: how many per second, and milliseconds of the median and the
    slowest hundredth.
    """
    seconds: list[float] = []

    async def run_clients() -> None:
        shares = [bodies[number::clients] for number in range(clients)]
        await asyncio.gather(*(run_client(server.port, share, seconds) for share in shares))

    start = time.perf_counter()
    asyncio.run(run_clients())
    total = time.perf_counter() - start
    return {
        "requests_per_second": len(bodies) / total,
        "p50_ms": 1000 * statistics.median(seconds),
        "p99_ms": 1000 * statistics.quantiles(seconds, n=100)[-1],
    }


def time_calls(
    function: Callable[[Any], Any], inputs: list[Any], samples: int = 1
) -> dict[str, float]:
    """Call a function with each input, which is of so many samples."""
    start = time.perf_counter()
    for value in inputs:
        function(value)
    return {"requests_per_second": samples * len(inputs) / (time.perf_counter() - start)}


def measure(run: str, count: int, repeats: int) -> dict[str, Any]:
    """Measure all sides of one model."""
    cores = len(os.sched_getaffinity(0))
    model = load_model(run, [], workers=1)
    different = make_requests(model.manifest["kind"])
    requests = [different[place % DIFFERENT] for place in range(count)]
    bodies = [json.dumps(fields).encode() for fields in requests]
    samples = [model.serving.read(next(iter(fields.values()))) for fields in requests]
    alone = [model.serving.stack([sample]) for sample in samples]
    together = [model.serving.stack(samples[:32])] * (count // 32)
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "loop, batch 1": partial(time_calls, model.run, alone),
        "loop, batch 1, read": partial(time_calls, model.answer, [[fields] for fields in requests]),
        "loop, batch 32": partial(time_calls, model.run, together, 32),
    }
    with Server(run) as server, Server(run, "--workers", str(cores)) as several:
        for clients in CLIENTS:
            sides[f"{clients} clients"] = partial(load_server, server, bodies, clients)
        sides[f"32 clients, {cores} workers"] = partial(load_server, several, bodies, 32)

        results: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
        for repeat in range(repeats + 1):
            for name, side in sides.items():
                result = side()
                if repeat:  # the first warms up
                    results[name].append(result)
    return {
        name: {key: summarise([result[key] for result in side]) for key in side[0]}
        for name, side in results.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--requests", type=int, default=640)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    use_package("project")
    before = os.getloadavg()[0]
    models = {
        run.removeprefix("lightning_logs/"): measure(run, options.requests, options.repeats)
        for run in options.runs
    }
    save("serve_load", {"requests": options.requests, "load_before": before, "models": models})
