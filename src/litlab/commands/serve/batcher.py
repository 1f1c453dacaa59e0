"""A queue in front of a model: requests that wait are answered together by its next call."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

Answer = dict[str, Any] | Exception  # an exception is the answer to one request, not to others


class Batcher:
    """Calls a model in a thread of its own, which nothing that the model raises can end.

    Args:
        answer: Returns the answer to each of some requests.
        most: Most requests in one call.
    """

    def __init__(self, answer: Callable[[list[Any]], list[Answer]], most: int) -> None:
        self.answer, self.most = answer, most
        self.waiting: SimpleQueue[tuple[Any, Future[Answer]]] = SimpleQueue()
        self.begun: float | None = None  # when the call of the model began that is not over
        # A model that hangs must not keep the process from its end.
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def submit(self, request: Any) -> Future[Answer]:
        """Put a request into the queue."""
        reply: Future[Answer] = Future()
        self.waiting.put((request, reply))
        return reply

    async def ask(self, request: Any) -> dict[str, Any]:
        """Return the answer to a request, or raise the exception that is its answer."""
        answer = await asyncio.wrap_future(self.submit(request))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def measure_call(self) -> float:
        """Return for how many seconds the model has been busy with its call; 0 if it waits."""
        begun = self.begun
        return 0.0 if begun is None else time.monotonic() - begun

    def _run(self) -> None:
        while True:
            batch = self._collect()
            answers = self._call([request for request, _ in batch])
            for (_, reply), answer in zip(batch, answers, strict=False):
                reply.set_result(answer)

    def _collect(self) -> list[tuple[Any, Future[Answer]]]:
        """Wait for a request, and take what has come with it; none waits for others to come."""
        batch = [self.waiting.get()]
        while len(batch) < self.most and not self.waiting.empty():
            batch.append(self.waiting.get())
        # The time of some may be over.
        return [entry for entry in batch if entry[1].set_running_or_notify_cancel()]

    def _call(self, requests: list[Any]) -> list[Answer]:
        """Call the model; where it fails on all requests together, once for each."""
        self.begun = time.monotonic()
        try:
            return self.answer(requests)
        except BaseException as error:  # tokenizers panic with one that is no Exception
            if len(requests) == 1:
                if not isinstance(error, Exception):
                    error = RuntimeError(repr(error)).with_traceback(error.__traceback__)
                return [error]
        finally:
            self.begun = None
        return [self._call([request])[0] for request in requests]
