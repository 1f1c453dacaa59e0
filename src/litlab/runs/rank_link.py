"""A connection of each rank to the first one, which the system closes when either process ends, however it ends."""

import json
import os
import socket
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

SECONDS_TO_CONNECT = 20.0
LONGEST_NAME = 4096  # bytes of the message that says who has connected
MOST_UNKNOWN = 64  # connections at a time
LOCAL = ("127.0.0.1", "localhost")
# Firewalls forget connections that are quiet for minutes, and a machine without power says nothing: ask every minute,
# and take a machine for lost that has not answered for five.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 8}  # of Linux; others ask after two hours

_sockets: "WeakSet[socket.socket]" = WeakSet()


class Peer:
    """The process at the other end of a connection.

    Args:
        connection: The connection.
        said: What is known of it.
    """

    def __init__(self, connection: socket.socket, **said: Any) -> None:
        self.said = said  # every message adds to it
        self.begun = b""  # of a message
        self.gone = False  # whether the process has ended
        self._connection = connection
        _sockets.add(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """Return the descriptor, for `wait`."""
        return self._connection.fileno()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def say(self, **message: Any) -> None:
        """Send a message; it is dropped where the other process has ended, which `hear` notices."""
        with suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> None:
        """Take in what has come."""
        part = b""
        with suppress(OSError):  # the connection is lost
            part = self._connection.recv(65536)
        self.gone = not part
        *lines, self.begun = (self.begun + part).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError, RecursionError):  # it is none of a rank
                self.said |= json.loads(line)


class RankLink:
    """The ends that this process has of these connections: the first rank those to all, every other one its own.

    The first rank listens on a port that the system chooses, on this machine only where all ranks are on it, until all
    ranks are there. Anybody may connect; a word from the store tells ranks from strangers. What comes is JSON.

    Args:
        store: Store of the process group, with a prefix of its own.
        rank: Rank of this process.
        ranks: Number of processes.

    Raises:
        OSError: If the first rank can't be reached.
    """

    def __init__(self, store: Store, rank: int, ranks: int) -> None:
        self.peers: list[Peer] = []
        self._expected = ranks - 1 if rank == 0 else 1
        self._unknown: list[Peer] = []  # those who have connected and not said who they are
        me = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
        address = os.environ["MASTER_ADDR"]
        if rank == 0:
            both = address not in LOCAL and socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            where = "127.0.0.1" if address in LOCAL else ""
            waiting = ranks + MOST_UNKNOWN
            self._server = socket.create_server((where, 0), family=family, backlog=waiting, dualstack_ipv6=both)
            _sockets.add(self._server)
            self._word = uuid4().hex
            store.set("first", json.dumps({**me, "port": self._server.getsockname()[1], "word": self._word}))
        else:
            first = json.loads(store.get("first"))
            try:
                connection = socket.create_connection((address, first["port"]), timeout=SECONDS_TO_CONNECT)
            except OSError as error:
                raise OSError(
                    f"rank {rank} on {me['host']} can't connect to rank 0 at {address}, port {first['port']} ({error})"
                ) from error
            connection.settimeout(None)
            self.peers.append(Peer(connection, rank=0, host=first["host"], pid=first["pid"]))
            self.say(word=first["word"], **me)

    def wait(self, seconds: float) -> None:
        """Take in what comes; return with the first of it, or after some seconds."""
        living = [peer for peer in [*self.peers, *self._unknown] if not peer.gone]
        server = [self._server] if len(self.peers) < self._expected else []
        ends: list[Any] = [*living, *server]  # with a fileno(), which is what `wait` needs
        for ready in wait(ends, seconds):
            if isinstance(ready, Peer):
                ready.hear()
            else:
                self._accept()
        for peer in list(self._unknown):
            if peer.gone or peer.said or len(peer.begun) > LONGEST_NAME:
                self._unknown.remove(peer)
                if peer.said.get("word") == self._word:
                    self.peers.append(peer)
                else:
                    peer.close()
        if server and len(self.peers) == self._expected:
            for end in [*self._unknown, self._server]:
                end.close()
            self._unknown.clear()

    def _accept(self) -> None:
        with suppress(OSError):  # whoever it was has gone again
            self._unknown.append(Peer(self._server.accept()[0]))
        if len(self._unknown) > MOST_UNKNOWN:
            self._unknown.pop(0).close()  # a rank says at once who it is

    def say(self, **message: Any) -> None:
        """Send a message to all other ends."""
        for peer in self.peers:
            peer.say(**message)


def _close() -> None:
    """Close the connections of a forked process: they would outlive the process that they stand for."""
    for connection in list(_sockets):
        connection.close()


os.register_at_fork(after_in_child=_close)
