"""Requests per second and waiting times of a server, beside the same model in a bare loop.

python benchmarks/serve_load.py lightning_logs/text/version_0/exported/onnx lightning_logs/cifar/version_0
python benchmarks/serve_load.py --requests 200 RUN     shorter

For each run or folder of an export: 1, 8 and 32 clients that send the next request when they have the answer to the
last; the server's defaults, on loopback, on the cores that the clients use, too. The bare loop calls the model with one
sample at a time, already read, on the same number of threads, and once more with 32 samples at a time. "read" is the
loop with reading the request and writing the answer, as the server's worker does. "workers" is a server with as many
workers as there are cores, each with one thread. Sides are measured in turns.
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
from typing import Any

import numpy as np
from common import save, summarise
from PIL import Image

from litlab.artifact import is_exported
from litlab.commands.serve.answerer import Answerer
from litlab.commands.serve.model import load_model
from litlab.util.team import use_package

CLIENTS = (1, 8, 32)
WORDS = ("market", "game", "court", "phone", "river", "minister", "league", "oil", "software", "rain")
DIFFERENT = 64  # requests, sent again and again


def requests(manifest: dict[str, Any]) -> list[bytes]:
    """Bodies of JSON for a model that takes texts or images."""
    rng = np.random.default_rng(0)
    if manifest["kind"] == "texts":
        return [
            json.dumps({"text": " ".join(rng.choice(WORDS, int(rng.integers(10, 60))))}).encode()
            for _ in range(DIFFERENT)
        ]
    if manifest["kind"] != "images":
        raise SystemExit("give runs of texts or images")
    bodies = []
    for _ in range(DIFFERENT):
        stream = io.BytesIO()
        pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((32, 32)).save(stream, "JPEG", quality=90)
        bodies.append(json.dumps({"image": base64.b64encode(stream.getvalue()).decode()}).encode())
    return bodies


class Server:
    """``python -m project serve`` on a free port."""

    def __init__(self, run: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "project", "serve", "--run", run, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r":(\d+)$", self.process.stdout.readline().strip())
        if found is None:
            raise SystemExit("the server did not start")
        self.port = int(found[1])

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


async def client(port: int, bodies: list[bytes], share: list[int], taken: list[float]) -> None:
    """Send requests over one connection; as little of a client as there can be, since it uses the same cores."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for place in share:
        body = bodies[place % len(bodies)]
        start = time.perf_counter()
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert length is not None
        await reader.readexactly(int(length[1]))
        taken.append(1000 * (time.perf_counter() - start))
    writer.close()


async def load(port: int, bodies: list[bytes], clients: int, count: int) -> dict[str, float]:
    """Let clients send requests: how many per second, and milliseconds of the median and the slowest hundredth."""
    shares = [list(range(number, count, clients)) for number in range(clients)]
    taken: list[float] = []
    start = time.perf_counter()
    await asyncio.gather(*(client(port, bodies, share, taken) for share in shares))
    seconds = time.perf_counter() - start
    return {
        "requests_per_second": count / seconds,
        "p50_ms": statistics.median(taken),
        "p99_ms": statistics.quantiles(taken, n=100)[-1],
    }


def loop(call: Callable[[int], Any], count: int) -> float:
    """Return the calls per second."""
    start = time.perf_counter()
    for place in range(count):
        call(place)
    return count / (time.perf_counter() - start)


def measure(run: str, count: int, repeats: int, threads: int) -> dict[str, Any]:
    """All sides of one model."""
    use_package("project")
    arguments, sys.argv = sys.argv, ["project"]
    answerer = Answerer(load_model(run, [], threads))
    sys.argv = arguments
    bodies = requests(answerer.served.manifest)
    sent = [("application/json", body) for body in bodies]
    reader, call = answerer.reader, answerer.served.run
    from litlab.commands.serve.body import read_body

    read = [reader.read(read_body(*request)) for request in sent]
    alone = [reader.stack([asked]) for asked in read]
    together = reader.stack(read[:32])
    loops: dict[str, Callable[[], float]] = {
        "batch 1": lambda: loop(lambda place: call(alone[place % DIFFERENT]), count),
        "batch 1, read": lambda: loop(lambda place: answerer.answers([sent[place % DIFFERENT]]), count),
        "batch 32": lambda: 32 * loop(lambda place: call(together), max(1, count // 32)),
        "batch 32, read": lambda: 32 * loop(lambda place: answerer.answers(sent[:32]), max(1, count // 32)),
    }
    found: dict[str, list[Any]] = {}
    with Server(run) as server, Server(run, "--workers", str(threads)) as several:
        sides = [(f"{clients} clients", server, clients) for clients in CLIENTS]
        sides.append((f"32 clients, {threads} workers", several, 32))
        for repeat in range(repeats + 1):  # the first warms up
            for name, side, clients in sides:
                one = asyncio.run(load(side.port, bodies, clients, count))
                if repeat:
                    found.setdefault(name, []).append(one)
            for name, call_all in loops.items():
                speed = call_all()
                if repeat:
                    found.setdefault(name, []).append(speed)
    served = {
        name: {key: summarise([one[key] for one in ones]) for key in ones[0]}
        for name, ones in found.items()
        if name not in loops
    }
    bare = {name: summarise(found[name]) for name in loops}
    best = bare["batch 1"]["median"]
    return {
        "format": answerer.served.manifest["format"],
        "exported": is_exported(run),
        "loop": bare,
        "served": served,
        "served_to_loop": {name: one["requests_per_second"]["median"] / best for name, one in served.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--requests", type=int, default=640)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    before = os.getloadavg()[0]
    results = {}
    for run in options.runs:
        named = measure(run, options.requests, options.repeats, threads)
        results[f"{run.removeprefix('lightning_logs/')}"] = named
    machine = {"cores": threads, "threads_of_the_model": threads, "requests": options.requests, "load_before": before}
    save("serve_load", {**machine, "models": results})
