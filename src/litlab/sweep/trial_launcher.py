"""The worker's side of a fork server: it starts fits, hears what they report, and ends them."""

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from litlab.util.team import package
from litlab.util.variables import TRIAL_ADDRESS

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_SAVE = 60.0  # for a fit that is told to stop
LOST = 70  # exit code of a worker whose fork server was killed


class ServerLost(Exception):
    """The fork server was killed; the fit that it ran is too."""


class TrialLauncher:
    """A fork server with what its fits report.

    Args:
        look: Called twice a second while a fit runs; an exception of its ends the fit, which saves its state.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look
        self._temporary = tempfile.TemporaryDirectory(prefix="sweep-")  # only its owner may enter it
        self.directory = Path(self._temporary.name)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address := str(self.directory / "fit"))
        self._listener.listen()
        self._environment = {TRIAL_ADDRESS: address}
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "litlab.sweep.server", package(), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},  # CUDA can't be forked
                stdin=subprocess.DEVNULL,
            )
        self._server = _Lines(ours)
        self._fit: int | None = None  # process (and group) that runs
        self._reports: _Lines | None = None

    def close(self) -> None:
        """Lets the server end."""
        self._server.socket.close()
        self._process.wait()
        self._listener.close()
        self._temporary.cleanup()

    def run(
        self, module: str, arguments: list[str], log: Path, stall_seconds: float
    ) -> Generator[dict[str, Any], None, None]:
        """Runs a module as ``python -m`` does, in a process of its own.

        Args:
            module: The module.
            arguments: Its command line.
            log: File that its output is added to.
            stall_seconds: After how long without a report it is killed.

        Closed before its end, it kills the module's process.

        Yields:
            What is reported; after one with metrics `answer` must be called. The last one has ``exit``: the exit code,
            minus the signal that killed it, or None if it gave no sign of life for too long.

        Raises:
            ServerLost: If the server was killed.
        """
        self._send(module=module, arguments=arguments, log=str(log), environment=self._environment)
        self._reports = None
        last_sign = time.monotonic()
        stopped: BaseException | None = None
        kill_at = math.inf
        try:
            while True:
                for message in self._messages():
                    last_sign = time.monotonic()
                    if "pid" in message:
                        self._fit = message["pid"]
                        if stopped is not None:
                            self._signal(signal.SIGTERM)
                    elif "exit" in message:
                        self._signal(signal.SIGKILL)  # what it had started and left behind
                        self._fit = None
                        if stopped is not None:
                            raise stopped
                        yield {"exit": None} if kill_at < last_sign else message
                        return
                    elif "run" in message or "metrics" in message:
                        yield message
                now = time.monotonic()
                if stopped is None:
                    try:
                        self.look()
                    except BaseException as error:  # what it reports while it stops still counts
                        stopped, kill_at = error, now + SECONDS_TO_SAVE
                        self._signal(signal.SIGTERM)
                if now - last_sign > stall_seconds:
                    kill_at = now
                if now >= kill_at:
                    self._signal(signal.SIGKILL)
        finally:
            if self._fit is not None:  # nobody listens any more
                self._signal(signal.SIGKILL)
                while not any("exit" in message for message in self._messages()):
                    pass
                self._fit = None
            if self._reports is not None:
                self._reports.socket.close()

    def answer(self, word: str) -> None:
        """Answers a report: ``go on`` or ``stop``."""
        assert self._reports is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it was killed: the server will tell
            self._reports.socket.sendall(f"{word}\n".encode())

    def _messages(self) -> list[dict[str, Any]]:
        """What has come within half a second; what the fit said before what the server says of its end."""
        sources = [self._server.socket, self._listener if self._reports is None else self._reports.socket]
        ready = select.select(sources, [], [], SECONDS_BETWEEN_LOOKS)[0]
        messages: list[dict[str, Any]] = []
        server = self._server.read() if self._server.socket in ready else []
        if server is None:
            self._server_is_lost()
        if self._reports is None and select.select([self._listener], [], [], 0)[0]:
            self._reports = _Lines(self._listener.accept()[0])
        if self._reports is not None and select.select([self._reports.socket], [], [], 0)[0]:
            heard = self._reports.read()
            if heard is None and not server:
                time.sleep(0.05)  # it has hung up and is about to end
            messages += heard or []
        return messages + (server or [])

    def _signal(self, signum: signal.Signals) -> None:
        """Signals the fit and all its processes, if there is one."""
        if self._fit is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._fit, signum)

    def _server_is_lost(self) -> None:
        self._signal(signal.SIGKILL)
        self._fit = None
        raise ServerLost

    def _send(self, **message: object) -> None:
        try:
            self._server.socket.sendall(json.dumps(message).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ServerLost from error


class _Lines:
    """Lines of JSON from a socket, as far as they have come."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._rest = b""

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that are whole; None at the end of the stream. Blocks where nothing has come."""
        try:
            received = self.socket.recv(65536)
        except ConnectionResetError:
            return None
        if not received:
            return None
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines]
