"""Connections that end."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Make connections fail that would otherwise wait for ever for the next bytes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
