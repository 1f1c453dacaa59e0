"""``python -m PACKAGE serve``: a run or an exported model as an HTTP server."""

import os
from argparse import ArgumentTypeError
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from litlab.errors import UserError
from litlab.util.numbers import amount_of, count
from litlab.util.options import Options, answer
from litlab.util.team import package

TOKEN = "LITLAB_SERVE_TOKEN"
NEEDED = ("starlette", "uvicorn", "python_multipart")
DESCRIPTION = f"""\
Answer HTTP requests with the model of a run, or with an exported one (docs/serve.md). There is a page
for people at /, and for programs /predict, /info, /health and /openapi.json. Ctrl-C stops the server.
Who may use it: programs of this machine, or those who know the token in the variable {TOKEN}.
All other arguments are settings of the run.

  %(prog)s --run cifar
  %(prog)s --run lightning_logs/cifar/version_0/exported/onnx --port 8080
  {TOKEN}=... %(prog)s --run DIR --host 0.0.0.0
"""


def main(arguments: list[str]) -> int:
    """Run the verb ``serve``.

    Args:
        arguments: What follows the verb on the command line.

    Returns:
        The exit code: 0 after SIGTERM; 2 after one line on what is wrong; 1 if the workers can't be kept alive; 130
        after Ctrl-C.
    """
    return answer(_serve, arguments)


def _serve(arguments: list[str]) -> int:
    options = Options("serve", DESCRIPTION)
    add = options.add_argument
    add("--run", required=True, metavar="RUN", help="run, checkpoint, or folder of an export")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine alone)")
    add("--port", type=_port, default=8000, help="port (default: 8000); 0 for a free one")
    add("--workers", metavar="N", type=count, default=1, help="processes that compute, each with a model (default: 1)")
    add("--batch_size", metavar="N", type=count, default=32, help="most requests computed together (default: 32)")
    add("--batch_wait", metavar="MS", type=_milliseconds, default=0.0,
        help="milliseconds that an idle worker waits for more requests (default: 0)")  # fmt: skip
    add("--queue", metavar="N", type=count, default=128, help="most requests at a time; more get 503 (default: 128)")
    add("--timeout", metavar="S", type=partial(amount_of, "seconds"), default=60.0,
        help="seconds after which a request gets 504 (default: 60)")  # fmt: skip
    add("--max_mb", metavar="MB", type=partial(amount_of, "megabytes"), default=10.0,
        help="megabytes of a request's body (default: 10)")  # fmt: skip
    chosen, settings = options.parse_known_args(arguments)
    token = _token()
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UserError(f"serve: {', '.join(missing)} is not installed; pip install '.[serve]'")
    from litlab.commands.serve.messages import Setup
    from litlab.commands.serve.pool import Rules
    from litlab.commands.serve.server import Place, serve

    _check(chosen.run, settings)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    setup = Setup(package(), chosen.run, tuple(settings), max(1, cores // chosen.workers))
    rules = Rules(chosen.workers, chosen.batch_size, chosen.batch_wait / 1000, chosen.queue, chosen.timeout)
    return serve(Place(chosen.host, chosen.port), setup, rules, token, int(chosen.max_mb * 1e6))


def _check(run: str, settings: list[str]) -> None:
    """Refuse at once what the workers would refuse when they have imported torch.

    Raises:
        UserError: There is no such run, or the exported model is damaged.
    """
    from litlab.artifact import is_exported, read_manifest
    from litlab.runs.find import find_run

    if is_exported(run):
        if settings:
            raise UserError(f"serve: {settings[0]} is a setting of a run, and {run} is an exported model; leave it out")
        read_manifest(Path(run))
    elif not os.path.isfile(run):
        find_run(run)


def _token() -> str | None:
    """Return the token, which no process that is started later finds among its variables."""
    token = os.environ.pop(TOKEN, None)
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise UserError(f"{TOKEN}: it is empty, or has spaces or other signs than those of ASCII; set another one")
    return token


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise ArgumentTypeError(f"{text!r} is not valid; it must be a whole number from 0 to 65535")
    return int(text)


def _milliseconds(text: str) -> float:
    return 0.0 if text in ("0", "0.0") else amount_of("milliseconds", text)
