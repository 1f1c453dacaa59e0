"""From a socket to a server that stops in order."""

import asyncio
import errno
import signal
import socket
import sys
from dataclasses import dataclass

import uvicorn

from litlab.commands.serve.app import Access, create_app
from litlab.commands.serve.messages import Setup
from litlab.commands.serve.pool import Pool, Rules
from litlab.errors import UserError

SECONDS_TO_DRAIN = 30
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class Place:
    """Where the server listens.

    Args:
        host: A name or address of this machine.
        port: A port, or 0 for a free one.
    """

    host: str
    port: int


def serve(place: Place, setup: Setup, rules: Rules, token: str | None, most_bytes: int) -> int:
    """Serve until a signal comes.

    Args:
        place: Where to listen.
        setup: What a worker is to serve.
        rules: How requests are batched.
        token: What a client must know; None: nobody is asked.
        most_bytes: Of a body.

    Returns:
        The exit code: 0 after SIGTERM; 130 after Ctrl-C.

    Raises:
        UserError: The port can't be had, or the model can't be loaded.
    """
    with bound(place) as listening:
        return asyncio.run(_serve(listening, place, setup, rules, token, most_bytes))


def bound(place: Place) -> socket.socket:
    """Return a socket at a place, before anything slow is done.

    Raises:
        UserError: Somebody else listens there, or it is no place of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)  # named, or asyncio leaves Nagle's algorithm on: 40 ms each
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host: {place.host} is no address of this machine; leave it out") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1)  # two servers can bind one port, but not listen on it
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"--port: {place.port} is in use; choose another one, or 0 for a free one") from error
        raise UserError(f"--port: {place.host}:{place.port} can't be used ({error.strerror}); choose others") from error
    return listening


async def _serve(
    listening: socket.socket, place: Place, setup: Setup, rules: Rules, token: str | None, most_bytes: int
) -> int:
    stopped: list[int] = []
    pool = Pool(setup, rules)
    try:
        await _start(pool, stopped)
        if stopped:
            return _code(stopped)
        address = listening.getsockname()
        local = token is None and (address[0].startswith("127.") or address[0] == "::1")
        app = create_app(pool, Access(token, _LOOPBACK | {place.host.lower()} if local else None, most_bytes))
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, lifespan="off",
                ws="none", http="h11",  # which limits headers, and is wherever uvicorn is
                timeout_graceful_shutdown=SECONDS_TO_DRAIN,
            )
        )  # fmt: skip

        def give_up(reason: asyncio.Future[str]) -> None:
            server.should_exit = not reason.cancelled()

        pool.failed.add_done_callback(give_up)
        for signum in (signal.SIGINT, signal.SIGTERM):  # uvicorn listens to them while it runs, then raises them again
            signal.signal(signum, lambda signum, _: stopped.append(signum))
        _say(pool, place, address, local, token)
        await server.serve(sockets=[listening])
        if pool.failed.done():
            print(f"error: serve: no worker can be started: {pool.failed.result()}", file=sys.stderr)
            return 1
        return _code(stopped)
    finally:
        await pool.stop()


async def _start(pool: Pool, stopped: list[int]) -> None:
    """Start the workers, unless a signal comes before they are ready."""
    loop, starting = asyncio.get_running_loop(), asyncio.ensure_future(pool.start())
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, lambda signum=signum: (stopped.append(signum), starting.cancel()))
    try:
        await starting
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(signum)


def _say(pool: Pool, place: Place, address: tuple, local: bool, token: str | None) -> None:
    host = f"[{place.host}]" if ":" in place.host else place.host
    manifest = pool.manifest
    print(
        f"Serving {manifest['run']['name']} ({manifest['kind']}, {manifest['format']}) at http://{host}:{address[1]}",
        flush=True,
    )
    if token is None and not local:
        print("Anybody who reaches this address can use the model: LITLAB_SERVE_TOKEN is not set.", file=sys.stderr)


def _code(stopped: list[int]) -> int:
    return 128 + signal.SIGINT if stopped and stopped[0] == signal.SIGINT else 0
