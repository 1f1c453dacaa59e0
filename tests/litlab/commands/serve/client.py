"""A server as a process, and a client that knows nothing of it; not a test itself."""

import http.client
import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from tests.conftest import OFFLINE

JSON = {"Content-Type": "application/json"}


class Server:
    """``python -m PACKAGE serve`` on a free port of this machine, in a folder."""

    def __init__(self, folder: Path, *arguments: object, package: str = "auks", **variables: str) -> None:
        self.log = folder / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", package, "serve", "--port", "0", *map(str, arguments)],
                cwd=folder, env={**os.environ, **OFFLINE, **variables}, stdout=log, stderr=log,
            )  # fmt: skip
        end = time.monotonic() + 120
        while " at http" not in self.printed():
            assert (self.process.poll(), time.monotonic() < end) == (None, True), self.printed()
            time.sleep(0.02)
        self.port = int(re.findall(r" at http://.*:(\d+)\n", self.printed())[0])

    def printed(self) -> str:
        return self.log.read_text()

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]

    def request(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[Any, bytes]:
        """The response to a GET, or with a body to a POST, and its body."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)) as connection:
            connection.request("GET" if body is None else "POST", path, body, headers or {})
            response = connection.getresponse()
            return response, response.read()

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
