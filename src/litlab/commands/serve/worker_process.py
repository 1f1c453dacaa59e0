"""A worker as the server sees it: a process at the other end of a pair of sockets."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any, Self

from litlab.commands.serve.messages import Reply, Setup, packed, receive
from litlab.errors import UserError

SECONDS_TO_END = 3.0
_LIMIT = 2**20  # bytes that are buffered


class Lost(Exception):
    """The process has ended."""


class WorkerProcess:
    """A process that has loaded the model. `start` makes one.

    Args:
        process: The process.
        reader: What it sends.
        writer: What is sent to it.
        manifest: The model's manifest.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        manifest: dict[str, Any],
    ) -> None:
        self.process, self.manifest = process, manifest
        self._reader, self._writer = reader, writer

    @classmethod
    async def start(cls, setup: Setup) -> Self:
        """Start a process, and wait until it has loaded the model.

        Raises:
            UserError: It can't load the model, or ends.
        """
        here, there = socket.socketpair()
        with there, contextlib.ExitStack() as unless_started:
            unless_started.callback(here.close)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "litlab.commands.serve.worker", str(there.fileno()),
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[there.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(setup.threads))},
            )  # fmt: skip
            unless_started.pop_all()
        reader, writer = await asyncio.open_connection(sock=here, limit=_LIMIT)
        made = cls(process, reader, writer, {})
        try:
            found = await made._exchange(setup)
            if isinstance(found, str):
                raise UserError(found)
            made.manifest = found
        except Lost:
            raise UserError(f"serve: a worker ended while it loaded the model (exit code {await made.end()})") from None
        except BaseException:
            await made.end()
            raise
        return made

    async def ask(self, requests: Sequence[tuple[str, bytes]]) -> list[Reply]:
        """Return the replies to some requests.

        Raises:
            Lost: The process has ended.
        """
        return await self._exchange(requests)

    async def ended(self) -> None:
        """Wait until the process ends by itself."""
        await self.process.wait()

    async def end(self) -> int:
        """End the process and return its exit code, minus the signal that killed it."""
        self._writer.close()
        if self.process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SECONDS_TO_END):
                    return await self.process.wait()
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        return await self.process.wait()

    async def _exchange(self, message: Any) -> Any:
        try:
            self._writer.write(packed(message))
            await self._writer.drain()
            return await receive(self._reader)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Lost from error
