"""``python -m PACKAGE serve``: a run or an exported model as an HTTP server, in processes that uvicorn supervises."""

import socket
from functools import partial
from ipaddress import ip_address

from litlab.commands.serve.options import TOKEN, parse_options
from litlab.errors import UserError

SECONDS_TO_DRAIN = 30
SECONDS_TO_ANSWER = 30  # for a worker, whether it is alive: imports can hold its threads up
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src blob:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [("Content-Security-Policy", POLICY), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    try:
        import python_multipart  # noqa: F401 - Starlette needs it for forms
        import uvicorn
        from uvicorn.config import STARTUP_FAILURE
        from uvicorn.supervisors import Multiprocess

        from litlab.commands.serve.app import create_app
    except ModuleNotFoundError as error:
        raise UserError(f"serve: {error.name} is not installed; pip install '.[serve]'") from error

    with listen(options.host, options.port) as listening:
        address, options.port = listening.getsockname()[:2]
        if options.token is None and not ip_address(address).is_loopback:
            raise UserError(f"--host: {options.host} is open to others; set a token in {TOKEN}, or leave --host out")
        config = uvicorn.Config(
            partial(create_app, options), factory=True, workers=options.workers, headers=HEADERS, log_level="warning",
            access_log=False, server_header=False, proxy_headers=False, ws="none",
            http="h11",  # which limits headers, and is wherever uvicorn is
            timeout_graceful_shutdown=SECONDS_TO_DRAIN, timeout_worker_healthcheck=SECONDS_TO_ANSWER,
        )  # fmt: skip
        supervisor = Multiprocess(config, [listening])
        supervisor.run()
    return 2 if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes) else 0


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, before anything slow is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host, --port: can't listen on {host}:{port} ({error}); choose others") from error
    # Only of a socket that says that it is TCP asyncio turns Nagle's algorithm off, which costs 40 ms a request.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
