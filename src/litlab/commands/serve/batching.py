"""Requests that wait while the model is busy are answered together by its next call."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Answer = dict[str, Any] | Exception  # an exception is the answer to one request, and no fault of the others


class Batcher:
    """A queue in front of a model that runs in one thread, with at most so many requests in one call."""

    def __init__(self, answer: Callable[[list[Any]], list[Answer]], most: int) -> None:
        self.answer, self.most = answer, most
        self.waiting: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1)

    async def ask(self, request: Any) -> dict[str, Any]:
        """Return the answer to a request, or raise the exception that is its answer."""
        reply = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((request, reply))
        return await reply

    async def run(self) -> None:
        """Answer what waits, for as long as the event loop runs."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            requests = [request for request, _ in batch]
            answers = await loop.run_in_executor(self.thread, self.answer, requests)
            for (_, reply), answer in zip(batch, answers, strict=True):
                if reply.done():  # the time of the request is over
                    continue
                if isinstance(answer, Exception):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)

    async def _collect(self) -> list[tuple[Any, asyncio.Future[Any]]]:
        """Wait for a request, and take what has come with it; no request waits for others to come."""
        batch = [await self.waiting.get()]
        while len(batch) < self.most and not self.waiting.empty():
            batch.append(self.waiting.get_nowait())
        return [(request, reply) for request, reply in batch if not reply.done()]
