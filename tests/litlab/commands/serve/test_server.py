"""What the command refuses; the server's limits; faults; and servers as processes that are killed
and stopped.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from starlette.testclient import TestClient
from uvicorn.supervisors import Multiprocess

from litlab.commands.serve.app import build_app
from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.options import ServeOptions
from litlab.util.checksums import write_checksums
from tests.conftest import OFFLINE
from tests.processes import Python
from tests.tiny_files import flip

TEXT = json.dumps({"text": "word1 sun word2"}).encode()
BAD = {
    "--run nothing": "error: nothing: there is no such run",
    "--run export --timeout nan": "'nan' is not a number of seconds above 0",
    "--run export --port 70000": "--port: 70000 is none; choose one up to 65535",
    "--run export --port TAKEN": "Address already in use",
    "--run export --port 0 --host 0.0.0.0": "set a token in LITLAB_SERVE_TOKEN, or leave --host "
    "out",
    "--run export --prot 1": "--prot is a setting of a run, and export is an exported model",
}


# A worker is forked, too: it need not import torch.
FORK = """
import multiprocessing, resource, runpy, sys, time, uvicorn._subprocess
from litlab.commands.serve import connections
from litlab.data.text.serving import TextServing
uvicorn._subprocess.spawn = multiprocessing.get_context("fork")
sys.argv[0] = "auks"
{change}
runpy.run_module("auks", run_name="__main__", alter_sys=True)
"""
HANG = """
stack = TextServing.stack
def hang(serving, samples):
    time.sleep(1000 * (samples[0].context["tokens"] > 20))
    return stack(serving, samples)
TextServing.stack = hang
"""
FEW = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
connections.SECONDS_TO_SEND = {seconds}
"""


def fork_server(*arguments: object, cwd: Path, change: str = "") -> Python:
    """`python -m auks serve` on a free port."""
    (cwd / "server.py").write_text(FORK.format(change=change))
    return Python("server.py", "serve", "--port", 0, *arguments, cwd=cwd, merge=True)


def ask(port: int, **fields: object) -> int:
    """Return the status of an answer, or that of /health."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        if fields:
            connection.request(
                "POST", "/predict", json.dumps(fields), {"Content-Type": "application/json"}
            )
        else:
            connection.request("GET", "/health")
        return connection.getresponse().status


def wait_for_port(process: Python | subprocess.Popen, printed: Callable[[], str]) -> int:
    end = time.monotonic() + 120
    while " at http" not in printed():
        assert (process.poll(), time.monotonic() < end) == (None, True), printed()
        time.sleep(0.02)
    return int(re.findall(r" at http://.*:(\d+)\n", printed())[0])


def test_refusals(run, exported, tmp_path):
    """Also by a worker, whose model is damaged."""
    shutil.copytree(exported, tmp_path / "export")
    flip(tmp_path / "export/model.ts", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        for flags, message in BAD.items():
            done = run("serve", *flags.replace("TAKEN", str(other.getsockname()[1])).split())
            assert (done.code, done.out, done.err.count("\n"), message in done.err) == (
                2,
                "",
                1,
                True,
            ), done.err
    process = fork_server("--run", "export", cwd=tmp_path)
    assert process.wait() == 2
    [printed] = process.printed()
    assert printed.startswith("error: export/model.ts: it is damaged")
    assert "Traceback" not in printed


def test_code_of_others_is_trusted_once(run, exported, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = shutil.copytree(exported, tmp_path / "export")
    monkeypatch.setattr(Multiprocess, "run", lambda self: None)  # it does not begin

    def asked(*flags: str) -> bool:
        done = run("serve", "--run", folder, "--port", 0, *flags)
        return done.code == 2 and "torchscript is code that runs with your rights" in done.err

    assert [asked(), asked("--trust"), asked()] == [True, False, False]
    with (folder / "model.ts").open("ab") as graph:  # another one
        graph.write(b"x")
    write_checksums(folder, leave_out="use.py")  # by whoever made it
    assert asked()
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")  # where nothing can be remembered
    assert [asked("--trust"), asked()] == [False, True]
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": "onnx"}))
    write_checksums(folder, leave_out="use.py")
    assert not asked()


def serve(answer, **options) -> TestClient:
    """A client of an application that answers with a function."""
    settings = ServeOptions(package="auks", **options)
    app = build_app({"kind": "texts"}, Batcher(answer, settings.batch_size), settings)
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def test_requests_that_wait_are_answered_in_batches():
    def answer(requests):
        time.sleep(0.3)
        return [{"together": len(requests)} for _ in requests]

    with serve(answer, batch_size=4, queue=8) as client, ThreadPoolExecutor(16) as threads:
        sent = [threads.submit(client.post, "/predict", json={})]
        time.sleep(0.1)
        sent += [threads.submit(client.post, "/predict", json={}) for _ in range(9)]
        responses = [one.result() for one in sent]
    answers = [response.json() for response in responses if response.status_code == 200]
    assert sorted(answer["together"] for answer in answers) == [1, 3, 3, 3, 4, 4, 4, 4]
    refused = {
        (one.text, one.headers["retry-after"]) for one in responses if one.status_code == 503
    }
    assert refused == {('{"error":"8 requests wait already; try again later"}', "1")}


ERRORS = [
    ValueError,
    MemoryError,
    TimeoutError,
    StopIteration,
    SystemExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
]


@pytest.mark.parametrize("error", ERRORS)
def test_a_request_that_the_model_fails_on_is_alone_with_it(error):
    def answer(requests):
        time.sleep(0.1)
        if {"bad": True} in requests:
            raise error
        return [{"together": len(requests)} for _ in requests]

    with serve(answer) as client, ThreadPoolExecutor(4) as threads:
        sent = [
            threads.submit(client.post, "/predict", json={"bad": number == 2})
            for number in range(4)
        ]
        assert [one.result().status_code for one in sent] == [200, 200, 500, 200]
        assert client.post("/predict", json={}).json() == {"together": 1}
        assert client.get("/health").status_code == 200


def test_limits_and_bugs():
    def answer(requests):
        time.sleep(requests[0].get("seconds", 0))
        return [ZeroDivisionError("a bug") for _ in requests]

    with serve(answer, timeout=0.3, max_mb=0.001) as client:
        expected = {
            500: ("the server failed to answer this request; its log says more", {"json": {}}),
            504: ("there was no answer within 0.3 seconds", {"json": {"seconds": 0.6}}),
            413: ("the body has more than 1,000 bytes", {"content": b"x" * 5000}),
        }
        for status, (message, request) in expected.items():
            response = client.post("/predict", **request)
            assert (response.status_code, response.json()) == (status, {"error": message})
        assert client.get("/info", headers={"Host": "attacker.example"}).status_code == 400


def test_a_token_is_asked_for():
    with serve(lambda requests: [{}] * len(requests), token="s3cret") as client:
        assert client.get("/").status_code == client.get("/health").status_code == 200
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            responses = [
                client.get("/info", headers=headers),
                client.post("/predict", json={}, headers=headers),
            ]
            assert [response.status_code for response in responses] == [401, 401]
        known = {"Authorization": "bearer s3cret", "Host": "model.example"}
        assert client.post("/predict", json={}, headers=known).json() == {}


def test_a_server_that_is_killed_leaves_nobody_behind(exported, tmp_path):
    server = fork_server("--run", exported, cwd=tmp_path)
    wait_for_port(server, lambda: server.printed()[0])
    [worker] = psutil.Process(server.pid).children()
    server.kill()
    assert psutil.wait_procs([worker], timeout=60)[1] == []


def test_a_model_that_hangs_is_replaced(exported, tmp_path, request):
    server = fork_server("--run", exported, "--timeout", 0.5, cwd=tmp_path, change=HANG)
    request.addfinalizer(server.kill)
    port = wait_for_port(server, lambda: server.printed()[0])
    assert ask(port) == ask(port, text="sun") == 200
    assert ask(port, text="sun " * 30) == 504
    time.sleep(0.1)
    assert ask(port) == 503
    end = time.monotonic() + 60
    while ask(port, text="sun") != 200:
        assert time.monotonic() < end, server.printed()
    assert ask(port) == 200
    assert ask(port, text="sun " * 30) == 504
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0


@pytest.mark.parametrize("seconds", [600, 2])
def test_clients_that_send_nothing_do_not_keep_others_out(exported, tmp_path, request, seconds):
    """There are descriptors for 64; and who is too slow is disconnected."""
    server = fork_server("--run", exported, cwd=tmp_path, change=FEW.format(seconds=seconds))
    request.addfinalizer(server.kill)
    port = wait_for_port(server, lambda: server.printed()[0])
    head = (
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
        f"{len(TEXT)}\r\nContent-Type: application/json"
    )
    sent = [head.encode(), f"{head}\r\n\r\n".encode(), b""]
    with ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            for _ in range(80)
        ]
        for number, connection in enumerate(idle):
            with suppress(ConnectionError):
                connection.sendall(sent[number % 3])
        assert ask(port, text="sun") == 200
        if seconds > 2:
            return

        slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        late = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        slow.sendall(sent[1])
        for number in range(len(TEXT)):  # a body that comes slowly is read, a head that does is not
            slow.sendall(TEXT[number : number + 1])
            with suppress(ConnectionError):
                late.sendall(sent[0][number : number + 1])
            time.sleep(0.1)
        assert slow.recv(12) == b"HTTP/1.1 200"
        late.settimeout(1)
        for connection in (late, *idle):
            with suppress(ConnectionError):
                assert connection.recv(1) == b""


def test_a_model_that_cannot_answer_is_not_served(exported, tmp_path):
    change = "TextServing.stack = lambda *_: 1 / 0"
    server = fork_server("--run", exported, cwd=tmp_path, change=change)
    assert server.wait() == 2
    [line] = server.printed()[0].splitlines()
    assert line.startswith("error: --run: the model can't answer an example (division by zero); ")


def test_a_stop_waits_for_requests_that_have_begun(exported, tmp_path, request):
    log, environment = (
        tmp_path / "log",
        {**os.environ, **OFFLINE, "LITLAB_SERVE_TOKEN": "s3cret-token"},
    )
    command = [sys.executable, "-m", "auks", "serve", "--run", exported, "--port", "0"]
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    request.addfinalizer(server.kill)
    port = wait_for_port(server, log.read_text)
    assert (
        f"Serving texts/version_0 (texts, torchscript) at http://127.0.0.1:{port}\n"
        in log.read_text()
    )
    # Whatever proxies are set
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/")
        policy = connection.getresponse().headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; ")
    children = psutil.Process(server.pid).children()
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert all("s3cret-token" not in worker.environ().values() for worker in workers)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = "POST /predict HTTP/1.1\r\nHost: model\r\nAuthorization: Bearer s3cret-token\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(TEXT)}\r\n\r\n"
        connection.sendall(head.encode() + TEXT[:10])
        time.sleep(0.5)
        for process in (server, *workers):  # as service managers do, to all processes at once
            process.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert server.poll() is None
        connection.sendall(TEXT[10:])
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert server.wait(60) == 0
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert not any(word in log.read_text() for word in ("s3cret-token", "Traceback"))
