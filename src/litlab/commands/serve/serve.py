"""``python -m PACKAGE serve``: a run or an exported model as an HTTP server, in processes that
uvicorn supervises.
"""

import logging
import os
import socket
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from litlab.artifact import is_exported
from litlab.artifact.trusted import check_trusted
from litlab.commands.serve.options import ServeOptions
from litlab.errors import UserError
from litlab.runs.find import find_run
from litlab.util.options import Options, amount_of, count

TOKEN = "LITLAB_SERVE_TOKEN"
DESCRIPTION = f"""\
Answer HTTP requests with the model of a run or an export (docs/serve.md). There is a page for
people at /; /predict, /info and /health are for programs. Ctrl-C stops the server. Only programs on
this machine can use it, or those that know the token in the environment variable
{TOKEN}. All other arguments are settings of the run.

  %(prog)s --run cifar
  %(prog)s --run lightning_logs/cifar/version_0/exported/onnx --port 8080
  {TOKEN}=... %(prog)s --run DIR --host 0.0.0.0
"""


_seconds, _megabytes = partial(amount_of, "seconds"), partial(amount_of, "megabytes")
FLAGS = (
    ("--host", None, str, "address to listen on (default: 127.0.0.1, this machine alone)"),
    ("--port", None, int, "port (default: 8000); 0 for a free one"),
    ("--workers", "N", count, "processes, each with its own model (default: 1)"),
    ("--batch_size", "N", count, "most requests computed together (default: 32)"),
    ("--queue", "N", count, "most requests of a worker at a time; more get 503 (default: 128)"),
    ("--timeout", "S", _seconds, "seconds after which a request gets 504 (default: 60)"),
    ("--max_mb", "MB", _megabytes, "most megabytes of a request's body (default: 10)"),
)


def parse_options(arguments: list[str]) -> ServeOptions:
    """Read the command line and the token. The run becomes its folder, as later workers must not
    find another one.
    """
    parser = Options("serve", DESCRIPTION)
    parser.add_argument("--run", required=True, help="run, checkpoint, or folder of an export")
    trust = "load an export from others that is code (torch's formats)"
    parser.add_argument("--trust", action="store_true", help=trust)
    for flag, metavar, kind, text in FLAGS:
        parser.add_argument(flag, metavar=metavar, type=kind, help=text)
    options = ServeOptions()
    _, options.settings = parser.parse_known_args(arguments, options)
    if not 0 <= options.port <= 65_535:
        raise UserError(
            f"--port: {options.port} is not a port; choose one up to 65535, or 0 for a free one"
        )

    # Processes that are started later don't find it there
    options.token = os.environ.pop(TOKEN, None) or None
    if is_exported(options.run):
        if options.settings:
            raise UserError(
                f"serve: {options.settings[0]} is a setting of a run, and {options.run} is "
                "an exported model; leave it out"
            )
    elif not os.path.isfile(options.run):
        options.run = str(find_run(options.run).path)
    return options


SECONDS_TO_DRAIN = 30
SECONDS_TO_ANSWER = 30  # for a worker, whether it is alive: imports can hold its threads up
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
]


def main(arguments: list[str]) -> int:
    options = parse_options(arguments)
    try:
        import python_multipart  # noqa: F401 - Starlette needs it for forms
        import uvicorn
        from uvicorn.config import STARTUP_FAILURE
        from uvicorn.supervisors import Multiprocess

        from litlab.commands.serve.connections import Connection
        from litlab.commands.serve.worker import create_app
    except ModuleNotFoundError as error:
        raise UserError(
            f"serve: {error.name} is not installed; pip install -e '.[serve]'"
        ) from error

    with listen(options.host, options.port) as listening:
        address, options.port = listening.getsockname()[:2]
        if options.token is None and not ip_address(address).is_loopback:
            raise UserError(
                f"--host: others can reach {options.host}; set a token in {TOKEN}, or leave --host "
                "out"
            )
        if is_exported(options.run):
            check_trusted(Path(options.run), options.trust)
        config = uvicorn.Config(
            partial(create_app, options),
            factory=True,
            workers=options.workers,
            headers=HEADERS,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            # A burst finds descriptors until the connections that wait are closed
            http=Connection,
            backlog=128,
            timeout_graceful_shutdown=SECONDS_TO_DRAIN,
            timeout_worker_healthcheck=SECONDS_TO_ANSWER,
        )
        # The worker has said why.
        logging.getLogger("uvicorn.error").addFilter(
            lambda record: "failed to start" not in record.msg
        )
        supervisor = Multiprocess(config, [listening])
        supervisor.run()
    return 2 if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes) else 0


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, before anything slow is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"--host, --port: can't listen on {host}:{port} ({error}); choose others"
        ) from error
    # Only of a socket that says that it is TCP asyncio turns Nagle's algorithm off, which costs 40
    # ms a request.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
