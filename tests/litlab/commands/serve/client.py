"""A server as a process, and a client that knows nothing of it; not a test itself."""

import http.client
import json
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import OFFLINE

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """``python -m PACKAGE serve`` on a free port of this machine, in a folder."""

    def __init__(
        self, folder: Path, *arguments: object, environment: dict[str, Any] | None = None, package: str = "auks"
    ) -> None:
        command = [sys.executable, "-m", package, "serve", "--port", "0", *map(str, arguments)]
        self.log = folder / f"{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            variables = {**os.environ, **OFFLINE, **(environment or {})}
            self.process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
        self.wait_for(lambda: self.process.poll() is not None or " at http" in self.printed())
        assert self.process.poll() is None, self.printed()
        self.port = int(re.findall(r" at http://.*:(\d+)\n", self.printed())[0])

    def printed(self) -> str:
        return self.log.read_text()

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    def wait_for(self, condition: Any, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.printed()
            time.sleep(0.02)

    def get(self, path: str) -> Response:
        return self.request("GET", path, None, {})

    def post(self, body: bytes, headers: dict[str, str]) -> Response:
        return self.request("POST", "/predict", body, headers)

    def form(self, file: bytes) -> Response:
        return self.post(*form(file))

    def request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Response:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """Stops it in order; its exit code."""
        self.process.terminate()
        return self.process.wait(60)


def form(file: bytes) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a form with a file."""
    part = b'--limit\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + file
    return part + b"\r\n--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}
