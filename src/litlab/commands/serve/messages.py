"""Messages between the server and its workers: pickles behind their length, over a pair of sockets."""

import asyncio
import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any

_LENGTH = struct.Struct(">Q")


@dataclass(frozen=True)
class Setup:
    """The first message to a worker: what it is to serve.

    Args:
        package: The team's package.
        run: What the user has named.
        settings: More of the command line.
        threads: Threads that compute.
    """

    package: str
    run: str
    settings: tuple[str, ...]
    threads: int


@dataclass(frozen=True)
class Reply:
    """The response to one request.

    Args:
        status: The HTTP status.
        body: JSON.
    """

    status: int
    body: bytes


def packed(message: Any) -> bytes:
    """Return a message as bytes to send."""
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


async def receive(reader: asyncio.StreamReader) -> Any:
    """Read a message from a worker.

    Raises:
        IncompleteReadError: The worker has ended.
        OSError: Likewise.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # from a process that the server has started


def receive_blocking(connection: socket.socket) -> Any:
    """Read a message from the server.

    Raises:
        EOFError: The server has ended, or needs the worker no more.
    """
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    return pickle.loads(_read(connection, length))


def _read(connection: socket.socket, length: int) -> bytearray:
    content = bytearray(length)
    view, got = memoryview(content), 0
    while got < length:
        count = connection.recv_into(view[got:])
        if not count:
            raise EOFError
        got += count
    return content
