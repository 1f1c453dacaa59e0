"""A connection of each rank to the first one, which the system closes when either process ends, however it ends."""

import json
import os
import select
import socket
from contextlib import suppress
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

from litlab.errors import UserError

SECONDS_TO_CONNECT = 60.0

_sockets: "WeakSet[socket.socket]" = WeakSet()


class Peer:
    """The process at the other end of a connection.

    Args:
        connection: The connection.
        said: What is known of it.
    """

    def __init__(self, connection: socket.socket, **said: Any) -> None:
        self.said = said  # every message adds to it
        self.gone = False  # whether the process has ended
        self._connection = connection
        self._begun = b""  # of a message
        _sockets.add(connection)

    def fileno(self) -> int:
        """Return the descriptor, for `select`."""
        return self._connection.fileno()

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
        *lines, self._begun = (self._begun + part).split(b"\n")
        for line in lines:
            with suppress(ValueError, TypeError):  # it is none of a rank
                self.said |= json.loads(line)


class RankLink:
    """The ends that this process has of these connections: the first rank those to all, every other one its own.

    Args:
        store: Store of the process group, with a prefix of its own.
        rank: Rank of this process.
        ranks: Number of processes.

    Raises:
        UserError: If the first rank can't be reached.
    """

    def __init__(self, store: Store, rank: int, ranks: int) -> None:
        self.peers: list[Peer] = []
        self._expected = ranks - 1 if rank == 0 else 1
        self._unknown: list[Peer] = []  # those who have connected and not said who they are
        me = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
        if rank == 0:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            self._server = socket.create_server(("", 0), family=family, backlog=ranks, dualstack_ipv6=both)
            _sockets.add(self._server)
            self._word = uuid4().hex  # anybody may connect; those who read the store know it
            store.set("first", json.dumps({**me, "port": self._server.getsockname()[1], "word": self._word}))
        else:
            first = json.loads(store.get("first"))
            address = os.environ["MASTER_ADDR"]
            try:
                connection = socket.create_connection((address, first["port"]), timeout=SECONDS_TO_CONNECT)
            except OSError as error:
                raise UserError(
                    f"trainer.num_nodes: rank {rank} on {me['host']} can't connect to rank 0 at {address}, port "
                    f"{first['port']} ({error}); let the machines of a run connect to each other on all ports"
                ) from error
            connection.settimeout(None)
            self.peers.append(Peer(connection, rank=0, host=first["host"], pid=first["pid"]))
            self.say(word=first["word"], **me)

    def wait(self, seconds: float) -> None:
        """Take in what comes; return with the first of it, or after some seconds."""
        living = [peer for peer in [*self.peers, *self._unknown] if not peer.gone]
        server = [self._server] if len(self.peers) < self._expected else []
        for ready in select.select([*living, *server], [], [], seconds)[0]:
            if isinstance(ready, Peer):
                ready.hear()
            else:
                self._unknown.append(Peer(ready.accept()[0]))
        for peer in [peer for peer in self._unknown if peer.gone or "word" in peer.said]:
            self._unknown.remove(peer)
            if peer.said.get("word") == self._word:
                self.peers.append(peer)

    def say(self, **message: Any) -> None:
        """Send a message to all other ends."""
        for peer in self.peers:
            peer.say(**message)


def _close() -> None:
    """Close the connections of a forked process: they would outlive the process that they stand for."""
    for connection in list(_sockets):
        connection.close()


os.register_at_fork(after_in_child=_close)
