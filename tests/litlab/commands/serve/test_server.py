"""What the command refuses; the server's limits; and servers as processes that are killed and stopped."""

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
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import psutil
from starlette.testclient import TestClient

from litlab.commands.serve.app import build_app
from litlab.commands.serve.serve import ServeOptions
from tests.conftest import OFFLINE
from tests.processes import Python
from tests.tiny_files import flip

TEXT = json.dumps({"text": "word1 sun word2"}).encode()
BAD = {
    "--run nothing": "error: nothing: there is no such run",
    "--run export --timeout nan": "'nan' is not a number of seconds above 0",
    "--run export --port 70000": "--port: 70000 is none; choose one up to 65535",
    "--run export --port TAKEN": "Address already in use",
    "--run export --port 0 --host 0.0.0.0": "set a token in LITLAB_SERVE_TOKEN, or leave --host out",
    "--run export --prot 1": "--prot is a setting of a run, and export is an exported model",
}


# A worker is forked, too: it need not import torch.
FORK = """
import multiprocessing, runpy, sys, uvicorn._subprocess
uvicorn._subprocess.spawn = multiprocessing.get_context("fork")
sys.argv[0] = "auks"
runpy.run_module("auks", run_name="__main__", alter_sys=True)
"""


def fork_server(*arguments: object, cwd: Path) -> Python:
    """`python -m auks serve` on a free port."""
    (cwd / "server.py").write_text(FORK)
    return Python("server.py", "serve", "--port", 0, *arguments, cwd=cwd, merge=True)


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
            assert (done.code, done.out, done.err.count("\n"), message in done.err) == (2, "", 1, True), done.err
    process = fork_server("--run", "export", cwd=tmp_path)
    assert process.wait() == 2
    [printed] = process.printed()
    assert printed.startswith("error: export/model.ts: it is damaged")
    assert "Traceback" not in printed


def serve(answer, **options) -> TestClient:
    """A client of an application that answers with a function."""
    app = build_app({"kind": "texts"}, answer, ServeOptions(package="auks", **options))
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
    refused = {(one.text, one.headers["retry-after"]) for one in responses if one.status_code == 503}
    assert refused == {('{"error":"8 requests wait already; try again later"}', "1")}


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
            responses = [client.get("/info", headers=headers), client.post("/predict", json={}, headers=headers)]
            assert [response.status_code for response in responses] == [401, 401]
        known = {"Authorization": "bearer s3cret", "Host": "model.example"}
        assert client.post("/predict", json={}, headers=known).json() == {}


def test_a_server_that_is_killed_leaves_nobody_behind(exported, tmp_path):
    server = fork_server("--run", exported, cwd=tmp_path)
    wait_for_port(server, lambda: server.printed()[0])
    [worker] = psutil.Process(server.pid).children()
    server.kill()
    assert psutil.wait_procs([worker], timeout=60)[1] == []


def test_a_stop_waits_for_requests_that_have_begun(exported, tmp_path, request):
    log, environment = tmp_path / "log", {**os.environ, **OFFLINE, "LITLAB_SERVE_TOKEN": "s3cret-token"}
    command = [sys.executable, "-m", "auks", "serve", "--run", exported, "--port", "0"]
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=file, stderr=file)
    request.addfinalizer(server.kill)
    port = wait_for_port(server, log.read_text)
    assert f"Serving texts/version_0 (texts, torchscript) at http://127.0.0.1:{port}\n" in log.read_text()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:  # whatever proxies are set
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
