"""A worker process: it loads the model, asks it once, and answers."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback

from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE

from litlab.commands.serve.app import build_app
from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.connections import Connection, count_connections
from litlab.commands.serve.model import Model, load_model
from litlab.commands.serve.options import ServeOptions
from litlab.errors import UserError, first_line
from litlab.util.team import use_package

SECONDS_TO_WARM_UP = 120.0


def create_app(options: ServeOptions) -> Starlette:
    """Load the model and return the application, or end the process with a line on why not."""
    threading.Thread(target=_end_with_server, daemon=True).start()
    use_package(options.package)
    try:
        model = load_model(options.run, options.settings, options.workers)
        batcher = Batcher(model.answer, options.batch_size)
        warm_up(model, batcher, max(SECONDS_TO_WARM_UP, options.timeout))
    except Exception as error:
        from litlab.cli.run_errors import explain_error

        line = None if os.environ.get("LITLAB_TRACEBACK") else explain_error(error)
        print(f"error: {line or traceback.format_exc()}", file=sys.stderr, flush=True)
        # Or the supervisor would wait for an answer to its ping, long after this process has ended.
        time.sleep(0.2)
        os._exit(STARTUP_FAILURE)  # a slow end would look like a worker that hangs
    gc.freeze()  # or collections would look through all of torch, while requests wait
    Connection.most = count_connections()
    host = f"[{options.host}]" if ":" in options.host else options.host
    served = (
        f"{model.manifest['run']['name']} ({model.manifest['kind']}, {model.manifest['format']})"
    )
    print(f"Serving {served} at http://{host}:{options.port}", flush=True)
    return build_app(model.manifest, batcher, options)


def warm_up(model: Model, batcher: Batcher, seconds: float) -> None:
    """Have an example answered, so that no client waits for what is done once.

    Raises:
        UserError: The model can't answer it.
    """
    try:
        sent = {model.serving.field: model.serving.sample_request()}
        answer = batcher.submit(sent).result(seconds)
    except TimeoutError:
        answer = TimeoutError(f"no answer within {seconds:g} seconds")
    if isinstance(answer, Exception):
        raise UserError(
            f"--run: the model can't answer an example ({first_line(answer)}); correct it, or "
            "serve another run (LITLAB_TRACEBACK=1 shows where)"
        ) from answer


def _end_with_server() -> None:
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os.kill(os.getpid(), signal.SIGTERM)
