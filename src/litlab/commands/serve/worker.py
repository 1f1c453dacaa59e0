"""The process that computes: ``python -m litlab.commands.serve.worker DESCRIPTOR``, which the server starts."""

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import traceback
from typing import Any

from litlab.commands.serve.messages import Setup, packed, receive_blocking
from litlab.errors import UserError, first_line
from litlab.util.team import use_package


def main() -> None:
    """Load the model, tell its manifest or what is wrong, and answer batches until the server closes the connection."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # sent to all processes at once: the server says when it is over
        signal.signal(signum, signal.SIG_IGN)
    gc.disable()  # a fifth of the time of the imports
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(EOFError, OSError):
        setup: Setup = receive_blocking(connection)
        found, answerer = _loaded(setup)
        gc.freeze()
        gc.enable()
        connection.sendall(packed(found))
        while answerer is not None:
            connection.sendall(packed(answerer.answers(receive_blocking(connection))))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking torch apart would take seconds, and there is nothing to save


def _loaded(setup: Setup) -> tuple[Any, Any]:
    """Return the manifest, and what answers; or a line on what is wrong and None."""
    from litlab.commands.serve.answerer import Answerer
    from litlab.commands.serve.model import load_model

    use_package(setup.package)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        served = load_model(setup.run, setup.settings, setup.threads)
        return served.manifest, Answerer(served)
    except UserError as error:
        return str(error), None
    except Exception as error:
        from litlab.cli.messages import describe_error

        message = describe_error(error)
        if message is None:
            traceback.print_exc()
            message = f"serve: the model can't be loaded ({type(error).__name__}: {first_line(error)})"
        return message, None


if __name__ == "__main__":
    main()
