"""Connections of a worker: clients that send nothing are no reason to refuse others."""

import asyncio
import os
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 1000
SECONDS_TO_SEND = 20.0  # for a client: the head of a request, or more of its body


class Connection(H11Protocol):
    """HTTP of uvicorn, which by itself waits for ever, and accepts until descriptors run out.

    A client that owes a request, or more of its body, has some time. Above `most` connections the
    one is closed whose client has kept the server waiting longest.
    """

    most: ClassVar[int] = MOST_CONNECTIONS
    timer: asyncio.TimerHandle

    def connection_made(  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn's
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._start_timer()
        if len(self.connections) > self.most:
            others = [other for other in self.connections if isinstance(other, Connection)]
            waiting = [other for other in others if other._waits_for_client()]  # this one at least
            oldest = min(waiting, key=lambda other: other.timer.when())
            self.connections.discard(oldest)  # the next one may come before this one is lost
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and self.cycle.more_body:  # a head that comes slowly gets no more
            self._start_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.timer.cancel()

    def _start_timer(self) -> None:
        if hasattr(self, "timer"):
            self.timer.cancel()
        self.timer = self.loop.call_later(SECONDS_TO_SEND, self._close_if_waiting)

    def _waits_for_client(self) -> bool:
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _close_if_waiting(self) -> None:
        if self._waits_for_client():
            self.transport.close()


def count_connections() -> int:
    """Return how many connections this process can hold, with a file for each: upload or page."""
    import resource  # not on Windows

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(MOST_CONNECTIONS, (allowed - len(os.listdir("/dev/fd"))) // 2))
