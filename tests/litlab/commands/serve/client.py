"""A server as a process, and a client that knows nothing of it; not a test itself."""

import http.client
import json
import os
import re
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import OFFLINE
from tests.processes import Python

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Response:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of an error, which is all that there is."""
        content = self.json()
        assert self.headers["content-type"] == "application/json"
        assert list(content) == ["error"]
        return content["error"]


class Server:
    """``python -m PACKAGE serve`` on a free port of this machine.

    Args:
        folder: Its working directory.
        arguments: More of its command line.
        environment: More variables.
        package: The team's package.
    """

    def __init__(
        self, folder: Path, *arguments: object, environment: dict[str, Any] | None = None, package: str = "auks"
    ) -> None:
        variables = {**OFFLINE, **(environment or {})}
        command = ["-m", package, "serve", "--port", 0, *arguments]
        self.process = Python(*command, cwd=folder, environment=variables)
        until = time.monotonic() + 120
        while not (found := re.search(r" at http://.*:(\d+)\n", self.printed())):
            assert self.process.poll() is None, self.printed()
            assert time.monotonic() < until, self.printed()
            time.sleep(0.02)
        self.port = int(found[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def printed(self) -> str:
        return "".join(self.process.printed())

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def pause(self) -> None:
        """Stops the workers, so that requests wait."""
        for worker in self.workers():
            worker.suspend()

    def go_on(self) -> None:
        for worker in self.workers():
            worker.resume()

    def inside(self, count: int) -> None:
        """Waits until so many requests wait."""
        self.until(lambda: self.get("/info").json()["server"]["inside"] == count)

    def until(self, condition: Any, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.printed()
            time.sleep(0.02)

    def get(self, path: str, **headers: str) -> Response:
        return self.request("GET", path, None, headers)

    def ask(self, **content: Any) -> Response:
        return self.post(json.dumps(content).encode(), JSON)

    def post(self, body: Any, headers: dict[str, str]) -> Response:
        return self.request("POST", "/predict", body, headers)

    def form(self, file: bytes | None = None, **fields: str) -> Response:
        body, headers = form(file, **fields)
        return self.post(body, headers)

    def request(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Response:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, found, response.read())
        finally:
            connection.close()

    def end(self) -> int:
        """Stops it in order; its exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        finally:
            self.process.kill()


def form(file: bytes | None = None, **fields: str) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a form."""
    boundary = uuid.uuid4().hex
    parts = [(f'name="{name}"', text.encode()) for name, text in fields.items()]
    if file is not None:
        parts.append(('name="file"; filename="x"\r\nContent-Type: application/octet-stream', file))
    head = f"--{boundary}\r\nContent-Disposition: form-data; "
    body = b"".join(head.encode() + name.encode() + b"\r\n\r\n" + data + b"\r\n" for name, data in parts)
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}
