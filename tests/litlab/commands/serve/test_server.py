"""A server as a process: limits, batches, tokens, workers that are killed, and the end."""

import json
import os
import signal
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor

import psutil
import pytest

from tests.litlab.commands.serve.client import JSON, Response, Server, form
from tests.litlab.commands.serve.malformed import requests

TEXT = {"text": "word1 sun word2"}


@pytest.fixture(scope="module")
def started() -> list[Server]:
    return []


@pytest.fixture
def server(start, started, example) -> Server:
    """A server of texts that takes few requests at a time, and small ones; another one if a test has killed it."""
    if not started or started[-1].process.poll() is not None:
        limits = ["--queue", 8, "--batch_size", 4, "--max_mb", 1, "--timeout", 30]
        started.append(start("--run", example("texts").run, *limits))
    return started[-1]


def counts(server) -> dict:
    return server.get("/info").json()["server"]


@pytest.fixture
def clients():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def ask(clients, server, count: int) -> list[Future[Response]]:
    """Requests that wait, in threads of their own."""
    sent = [clients.submit(server.ask, **TEXT) for _ in range(count)]
    server.inside(count)
    return sent


def test_what_a_server_says_of_itself(server, example):
    assert server.get("/health").json() == {"status": "ok", "workers": 1}
    info = server.get("/info").json()
    assert (info["kind"], info["run"]["name"], info["format"]) == ("texts", "texts/version_0", "pytorch")
    assert info["facts"]["class_names"] == ["class_0", "class_1", "class_2", "class_3"]
    assert info["server"]["limits"]["body_bytes"] == 1_000_000
    assert str(example("texts").run) not in json.dumps(info)
    lines = server.printed().splitlines()
    assert lines == [f"Serving texts/version_0 (texts, pytorch) at {server.address}"]


def test_a_request_by_json_and_by_form(server, example):
    row, text = example("texts").predicted[0], example("texts").input.read_text().splitlines()[1].partition(",")[2]
    for response in (server.ask(text=text), server.form(text=text), server.form(text.encode())):
        assert response.status == 200
        assert response.json()["class"] == row["prediction"]
        assert response.json()["probability"] == pytest.approx(float(row["probability"]), abs=1e-5)
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_interface_is_described(server):
    described = server.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]) == {"/predict", "/info", "/health"}
    post = described["paths"]["/predict"]["post"]
    assert set(post["requestBody"]["content"]) == {"application/json", "multipart/form-data"}
    answer = server.ask(**TEXT).json()
    assert set(post["responses"]["200"]["content"]["application/json"]["schema"]["required"]) == set(answer)
    assert server.get("/docs").headers["location"] == "/#programs"


def test_the_page_allows_nothing_from_elsewhere(server):
    response = server.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    page = response.body.decode()
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    assert "innerHTML" not in page
    assert "texts/version_0" not in page  # nothing of the model


def test_only_this_machine_is_listened_to_and_by_its_name(server):
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        if not address.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((address, server.port), timeout=5)
    assert server.get("/info", Host="localhost:1").status == 200
    response = server.get("/info", Host="attacker.example")  # which somebody has pointed at this machine
    assert (response.status, response.error) == (403, "this server answers only if it is called by the name localhost")
    assert server.get("/info", Origin=server.address).status == 200
    for origin in ("https://attacker.example", "null", "http://localhost.attacker.example"):
        response = server.get("/info", Origin=origin)
        assert (response.status, response.error) == (403, "this server answers its own page only, not those of others")


def test_200_malformed_requests_to_a_server(server):
    before = server.workers()
    for body, headers in requests("texts", 200, seed=1):
        response = server.post(body, headers)
        assert 400 <= response.status < 500, (response, body[:200])
        assert response.error
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"POST /predict HTTP/9\r\n\r\n", b"\0" * 70_000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100).startswith((b"HTTP/1.1 400", b""))
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:  # gone within its body
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Content-Length: 1000\r\n\r\n{")
    assert server.ask(text="sun").status == 200
    assert server.workers() == before
    server.until(lambda: server.get("/info").json()["server"]["inside"] == 0)
    assert "Traceback" not in server.printed()


def test_other_routes_and_methods(server):
    assert server.get("/nothing").error == "there is no such address; / is the page, /docs says more"
    assert server.get("/predict/").status == 404
    response = server.get("/predict")
    assert (response.status, response.headers["allow"]) == (405, "POST")
    assert response.error == "GET is not the method of this address"
    assert server.request("DELETE", "/info", None, {}).status == 405
    assert server.post(b"", JSON).error == "the body is empty"


def test_large_bodies_are_refused(server):
    """A very large one before it is read, by what is announced."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head + b"Content-Length: 100000000000\r\n\r\n")
        assert connection.recv(20).startswith(b"HTTP/1.1 413")
    for body in (b"x" * 1_000_001, b"x" * 9_000_000, iter([b"x" * 100_000] * 50)):
        response = server.post(body, JSON)
        assert (response.status, response.error) == (413, "the body has more than 1,000,000 bytes")
    assert server.form(b"a" * 999_000).status == 413  # of the text
    assert server.ask(**TEXT).status == 200


def test_requests_that_wait_are_answered_in_batches(server, clients):
    before = counts(server)
    server.pause()
    sent = ask(clients, server, 8)
    response = server.ask(**TEXT)  # one more than the queue takes
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    assert response.error == "8 requests are waiting already; try again later"
    assert server.get("/health").status == 200
    server.go_on()
    assert [one.result().status for one in sent] == [200] * 8
    after = counts(server)
    assert after["requests"] - before["requests"] == 8
    assert after["batches"] - before["batches"] <= 3  # the first, which was taken alone, and four at a time
    assert after["largest_batch"] == 4


def test_a_worker_that_is_killed_is_replaced(server, clients):
    """What it was computing is answered at once, what waits as soon as there is another one."""
    restarts = counts(server)["restarts"]
    server.pause()
    sent = ask(clients, server, 1)
    (worker,) = server.workers()
    worker.kill()
    assert (sent[0].result(10).status, sent[0].result().headers["retry-after"]) == (503, "5")
    assert sent[0].result().error == "the process that computed this answer has ended; try again"
    server.until(lambda: server.get("/health").status == 503, 5)
    response = server.ask(**TEXT)
    assert (response.status, response.error) == (503, "the model is being loaded again; try again later")
    server.until(lambda: server.get("/health").status == 200)
    assert server.ask(**TEXT).status == 200
    assert counts(server)["restarts"] == restarts + 1
    assert "A worker ended (exit code -9); another one is started." in server.printed()
    assert "Traceback" not in server.printed()


def test_a_token_is_asked_for_and_a_stop_waits_for_answers(start, example, clients):
    secret = "s3cret-token"
    run = example("texts").run
    server = start("--run", run, "--workers", 2, environment={"LITLAB_SERVE_TOKEN": secret})
    for path in ("/", "/health"):
        assert server.get(path).status == 200
    for path in ("/info", "/openapi.json"):
        response = server.get(path)
        assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
        assert response.error == "the token is missing; send the header 'Authorization: Bearer TOKEN'"
        assert server.get(path, Authorization="Bearer s3cret-toke").error.startswith("the token is wrong")
        assert server.get(path, Authorization=f"bearer {secret}", Host="model.example").status == 200
    assert server.ask(**TEXT).status == 401
    body, headers = form(text="sun")
    known = {**headers, "Authorization": f"Bearer {secret}"}
    assert server.post(body, known).status == 200
    assert secret not in server.printed()
    workers = server.workers()
    assert len(workers) == 2
    assert all(secret not in worker.environ().values() for worker in workers)

    server.pause()
    sent = [clients.submit(server.post, body, known) for _ in range(3)]
    server.until(lambda: server.get("/info", Authorization=f"Bearer {secret}").json()["server"]["inside"] == 3)
    server.process.send_signal(signal.SIGTERM)
    for worker in workers:  # as service managers do, to all processes at once
        worker.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
    assert server.process.poll() is None
    for worker in workers:
        worker.resume()
    assert [one.result(20).status for one in sent] == [200] * 3
    assert server.process.wait(10) == 0
    assert psutil.wait_procs(workers, timeout=5)[1] == []
    assert len(server.printed().splitlines()) == 1


def test_a_server_that_is_killed_leaves_nobody_behind(server):
    workers = server.workers()
    assert len(workers) == 1
    os.kill(server.process.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs(workers, timeout=10)
    assert (len(gone), alive) == (1, [])
