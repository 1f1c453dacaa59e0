"""What the command refuses; the server's limits; faults; and servers as processes that are killed
and stopped.
"""

import asyncio
import json
import re
import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from threading import Event

import psutil
import pytest
from starlette.testclient import TestClient
from uvicorn.supervisors import Multiprocess

from litlab.commands.serve.app import build_app
from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.options import ServeOptions
from litlab.runs.folder import read_json, write_json
from litlab.util.checksums import write_checksums
from tests.conftest import OFFLINE
from tests.processes import Python

TEXT = json.dumps({"text": "word1 sun word2"}).encode()
BAD = {
    "--run nothing": "error: nothing: there is no such run",
    "--run export --timeout nan": "'nan' is not a number of seconds above 0",
    "--run export --port 70000": "--port: 70000 is not a port; choose one up to 65535",
    "--run export --port TAKEN": "Address already in use",
    "--run export --port 0 --host 0.0.0.0": "set a token in LITLAB_SERVE_TOKEN, or leave --host",
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


def fork_server(*arguments, cwd, change="", **options) -> Python:
    """`python -m auks serve` on a free port."""
    (cwd / "server.py").write_text(FORK.format(change=change))
    words = ("server.py", "serve", "--port", 0, *arguments)
    return Python(*words, cwd=cwd, merge=True, **options)


def ask(port, **fields):
    """Return the status of an answer, or that of /health."""
    words = ["GET", "/health"]
    if fields:
        headers = {"Content-Type": "application/json"}
        words = ["POST", "/predict", json.dumps(fields), headers]
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(*words)
        return connection.getresponse().status


@pytest.fixture
def start(exported, tmp_path, request):
    """Starts a server of the export, which ends with the test; returns it and its port."""

    def start_server(*flags, **options):
        server = fork_server("--run", exported, *flags, cwd=tmp_path, **options)
        request.addfinalizer(server.kill)
        while not (found := re.search(r" at http://.*:(\d+)\n", server.printed()[0])):
            assert server.poll() is None, server.printed()
            time.sleep(0.02)
        return server, int(found[1])

    return start_server


def test_refusals(run, exported, tmp_path):
    """Also by a worker, whose model can't answer."""
    (tmp_path / "export").symlink_to(exported)
    with socket.create_server(("127.0.0.1", 0)) as other:
        for flags, message in BAD.items():
            done = run(f"serve {flags.replace('TAKEN', str(other.getsockname()[1]))}")
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
            assert message in done.err
    server = fork_server("--run", exported, cwd=tmp_path, change="TextServing.stack = None")
    assert server.wait() == 2
    [line] = server.printed()[0].splitlines()
    assert line.startswith("error: --run: the model can't answer an example ('NoneType' ")


def test_code_of_others_is_trusted_once(run, exported, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = shutil.copytree(exported, tmp_path / "export")
    monkeypatch.setattr(Multiprocess, "run", lambda self: None)  # it does not begin

    def asked(*flags):
        done = run("serve --run", folder, "--port", 0, *flags)
        return done.code == 2 and "torchscript is code that runs with your rights" in done.err

    assert [asked(), asked("--trust"), asked()] == [True, False, False]
    with (folder / "model.ts").open("ab") as graph:  # another one
        graph.write(b"x")
    write_checksums(folder, leave_out="use.py")  # by whoever made it
    assert asked()
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")  # where nothing can be remembered
    assert [asked("--trust"), asked()] == [False, True]
    manifest = folder / "manifest.json"
    write_json(manifest, read_json(manifest) | {"format": "onnx"})
    write_checksums(folder, leave_out="use.py")
    assert not asked()


def serve(answer, **options) -> TestClient:
    """A client of an application that answers with a function."""
    settings = ServeOptions(package="auks", **options)
    batcher = Batcher(answer, settings.batch_size)
    app = build_app({"kind": "texts"}, batcher, settings)
    app.state.waiting = batcher.waiting
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


def test_requests_that_wait_are_answered_in_batches():
    begun, gate = Event(), Event()

    def answer(requests):
        begun.set()
        gate.wait()
        return [{"together": len(requests)} for _ in requests]

    with serve(answer, batch_size=4, queue=8) as client, ThreadPoolExecutor(16) as threads:
        sent = [threads.submit(client.post, "/predict", json={})]
        begun.wait()
        sent += [threads.submit(client.post, "/predict", json={}) for _ in range(9)]
        while (client.app.state.waiting.qsize(), sum(one.done() for one in sent)) != (7, 2):
            time.sleep(0.01)
        gate.set()
        responses = [one.result() for one in sent]
    answers = [response.json() for response in responses if response.status_code == 200]
    assert sorted(answer["together"] for answer in answers) == [1, 3, 3, 3, 4, 4, 4, 4]
    refused = {
        (one.text, one.headers["retry-after"]) for one in responses if one.status_code == 503
    }
    assert refused == {('{"error":"8 requests wait already; try again later"}', "1")}


@pytest.mark.parametrize(
    "error", [ValueError, TimeoutError, StopIteration, KeyboardInterrupt, asyncio.CancelledError]
)
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
    gate = Event()

    def answer(requests):
        gate.wait()
        return [ZeroDivisionError("a bug") for _ in requests]

    expected = {
        504: ("there was no answer within 0.1 seconds", {"json": {}}, {"timeout": 0.1}),
        500: ("the server failed to answer this request; its log says more", {"json": {}}, {}),
        413: ("the body has more than 1,000 bytes", {"content": b"x" * 5000}, {"max_mb": 0.001}),
    }
    for status, (message, request, options) in expected.items():
        with serve(answer, **options) as client:
            response = client.post("/predict", **request)
            assert (response.status_code, response.json()) == (status, {"error": message})
        gate.set()
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


def test_a_server_that_is_killed_leaves_nobody_behind(start):
    server, _ = start()
    [worker] = psutil.Process(server.pid).children()
    server.kill()
    assert psutil.wait_procs([worker], timeout=60)[1] == []


def test_a_model_that_hangs_is_replaced(start):
    server, port = start("--timeout", 0.5, change=HANG)
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
def test_clients_that_send_nothing_do_not_keep_others_out(start, seconds):
    """There are descriptors for 64; and who is too slow is disconnected."""
    _, port = start(change=FEW.format(seconds=seconds))
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(TEXT)}\r\n"
    head += "Content-Type: application/json"
    sent = [head.encode(), f"{head}\r\n\r\n".encode(), b""]
    with ExitStack() as stack:

        def connect() -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
            return stack.enter_context(connection)

        idle = [connect() for _ in range(80)]
        for number, connection in enumerate(idle):
            with suppress(ConnectionError):
                connection.sendall(sent[number % 3])
        assert ask(port, text="sun") == 200
        if seconds > 2:
            return

        slow, late = connect(), connect()
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


def test_a_stop_waits_for_requests_that_have_begun(start):
    """Of a worker that is started as everywhere else."""
    change = 'uvicorn._subprocess.spawn = multiprocessing.get_context("spawn")'
    secret = {"LITLAB_SERVE_TOKEN": "s3cret-token"}
    server, port = start(change=change, environment={**OFFLINE, **secret})
    served = f"Serving texts/version_0 (texts, torchscript) at http://127.0.0.1:{port}\n"
    assert served in server.printed()[0]
    children = psutil.Process(server.pid).children()
    [worker] = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert "s3cret-token" not in worker.environ().values()
    # Whatever proxies are set
    with (
        closing(HTTPConnection("127.0.0.1", port, timeout=60)) as idle,
        socket.create_connection(("127.0.0.1", port), timeout=60) as begun,
    ):
        idle.request("GET", "/")
        page = idle.getresponse()
        assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src")
        assert page.read()
        head = "POST /predict HTTP/1.1\r\nHost: model\r\nAuthorization: Bearer s3cret-token\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(TEXT)}\r\n"
        begun.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert begun.recv(100).startswith(b"HTTP/1.1 100"), "the body is being read"
        for process in (server, worker):  # as service managers do, to all processes at once
            process.send_signal(signal.SIGTERM)
        assert idle.sock.recv(1) == b"", "the worker closes what is idle: it is about to stop"
        assert server.poll() is None
        begun.sendall(TEXT)
        assert begun.recv(12) == b"HTTP/1.1 200"
    assert server.wait(60) == 0
    assert psutil.wait_procs([worker], timeout=60)[1] == []
    assert not re.search("s3cret-token|Traceback", server.printed()[0])
