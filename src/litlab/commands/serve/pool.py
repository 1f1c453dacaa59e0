"""The requests that wait, and the workers that answer them in batches. A worker that ends is replaced."""

import asyncio
import contextlib
import sys
import time
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from litlab.commands.serve.messages import Reply, Setup
from litlab.commands.serve.refusal import Refusal
from litlab.commands.serve.worker_process import Lost, WorkerProcess
from litlab.errors import UserError

ATTEMPTS = 5  # to start a worker, before the server gives up
SECONDS_BETWEEN_ATTEMPTS = 1.0


@dataclass(frozen=True)
class Rules:
    """How requests are batched.

    Args:
        workers: Number of workers.
        batch_size: Most requests that a worker answers together.
        batch_wait: Seconds that an idle worker waits for more requests after the first.
        queue: Most requests that are read, wait or are computed at a time.
        timeout: Seconds after which a request is given up.
    """

    workers: int = 1
    batch_size: int = 32
    batch_wait: float = 0.0
    queue: int = 128
    timeout: float = 60.0


@dataclass
class Counts:
    """What the workers have done.

    Args:
        requests: Requests that they got.
        batches: Batches of them.
        largest_batch: Requests in the largest batch.
        restarts: Workers that were replaced.
    """

    requests: int = 0
    batches: int = 0
    largest_batch: int = 0
    restarts: int = 0


@dataclass
class Waiting:
    """A request that waits for its reply.

    Args:
        request: ``Content-Type`` and body.
        reply: Where the reply comes.
        until: When nobody waits for it any more, by the clock of `time.monotonic`.
    """

    request: tuple[str, bytes]
    reply: asyncio.Future[Reply]
    until: float


class Pool:
    """Workers and what waits for them.

    Args:
        setup: What a worker is to serve.
        rules: How requests are batched.
    """

    def __init__(self, setup: Setup, rules: Rules) -> None:
        self.setup, self.rules = setup, rules
        self.counts = Counts()
        self.ready = 0  # workers
        self.inside = 0  # requests, from the reading of their bodies to their replies
        self.manifest: dict[str, Any] = {}
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why no worker can be started
        self._queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the workers.

        Raises:
            UserError: They can't load the model.
        """
        starting = [asyncio.create_task(WorkerProcess.start(self.setup)) for _ in range(self.rules.workers)]
        try:
            processes = await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            for found in await asyncio.gather(*starting, return_exceptions=True):
                if isinstance(found, WorkerProcess):
                    await found.end()
            raise
        self.manifest = processes[0].manifest
        self.ready = len(processes)
        self._tasks = [asyncio.create_task(self._keep(process)) for process in processes]
        for task in self._tasks:
            task.add_done_callback(self._give_up)

    async def stop(self) -> None:
        """End the workers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Take a place for a request, before its body is read.

        Raises:
            Refusal: There is none, or nobody to answer it.
        """
        if self.inside >= self.rules.queue:
            raise Refusal(503, f"{self.inside} requests are waiting already; try again later", {"Retry-After": "1"})
        if not self.ready:
            raise Refusal(503, "the model is being loaded again; try again later", {"Retry-After": "5"})
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    async def ask(self, content_type: str, body: bytes) -> Reply:
        """Answer a request that has a `place`.

        Raises:
            Refusal: The worker was lost, or too slow.
        """
        reply = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Waiting((content_type, body), reply, time.monotonic() + self.rules.timeout))
        try:
            async with asyncio.timeout(self.rules.timeout):
                return await reply
        except TimeoutError:
            raise Refusal(504, f"there was no answer within {self.rules.timeout:g} seconds") from None

    async def _keep(self, process: WorkerProcess) -> None:
        """Feed a worker, and those that replace it."""
        while True:
            feeding = asyncio.create_task(self._feed(process))
            ending = asyncio.create_task(process.ended())
            try:
                await asyncio.wait({feeding, ending}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.ready -= 1
                for task in (feeding, ending):
                    task.cancel()
                bug, _ = await asyncio.gather(feeding, ending, return_exceptions=True)
                code = await process.end()
            if isinstance(bug, Exception):
                traceback.print_exception(bug)
            print(f"A worker ended (exit code {code}); another one is started.", file=sys.stderr, flush=True)
            self.counts.restarts += 1
            process = await self._replacement()
            self.ready += 1

    async def _replacement(self) -> WorkerProcess:
        for attempt in range(ATTEMPTS):
            try:
                process = await WorkerProcess.start(self.setup)
                if all(process.manifest.get(key) == self.manifest.get(key) for key in ("run", "files")):
                    return process
                await process.end()
                raise UserError(f"{self.setup.run} is another model by now; start the server again")
            except (UserError, OSError) as error:
                print(f"A worker could not be started: {error}", file=sys.stderr, flush=True)
                if attempt + 1 == ATTEMPTS and not self.failed.done():
                    self.failed.set_result(str(error))
                await asyncio.sleep(SECONDS_BETWEEN_ATTEMPTS * 2**attempt)
        return await asyncio.Future()  # the server stops

    def _give_up(self, task: asyncio.Task[None]) -> None:
        """Let the server end if the place of a worker was left by a bug."""
        if not task.cancelled() and not self.failed.done():
            traceback.print_exception(task.exception())
            self.failed.set_result(repr(task.exception()))

    async def _feed(self, process: WorkerProcess) -> None:
        """Give a worker batches, as long as it lives."""
        while True:
            batch: list[Waiting] = []
            try:
                await self._fill(batch)
                async with asyncio.timeout(self.rules.timeout):
                    replies = await process.ask([waiting.request for waiting in batch])
                for waiting, reply in zip(batch, replies, strict=True):
                    if not waiting.reply.done():
                        waiting.reply.set_result(reply)
            except (TimeoutError, Lost):
                return
            finally:
                for waiting in batch:
                    if not waiting.reply.done():
                        waiting.reply.set_exception(_lost())

    async def _fill(self, batch: list[Waiting]) -> None:
        """Put into a batch what waits, at least one request."""
        until = None
        while len(batch) < self.rules.batch_size:
            if self._queue.empty() and batch:
                until = until or time.monotonic() + self.rules.batch_wait
                left = until - time.monotonic()
                if left <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        _add(batch, await self._queue.get())
            else:
                _add(batch, await self._queue.get())
        self.counts.requests += len(batch)
        self.counts.batches += 1
        self.counts.largest_batch = max(self.counts.largest_batch, len(batch))


def _add(batch: list[Waiting], waiting: Waiting) -> None:
    """Add a request to a batch, unless nobody waits for it any more."""
    if not waiting.reply.done() and time.monotonic() < waiting.until:
        batch.append(waiting)


def _lost() -> Refusal:
    return Refusal(503, "the process that computed this answer has ended; try again", {"Retry-After": "5"})
