"""The HTTP interface of each worker process: addresses, bodies, and what goes wrong as JSON with one sentence.

Requests that wait while the model is busy are answered together by its next call.
"""

import asyncio
import contextlib
import gc
import hmac
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message
from uvicorn.config import STARTUP_FAILURE

from litlab.commands.serve.serve import ServeOptions
from litlab.errors import UserError, first_line
from litlab.util.team import use_package

Answer = dict[str, Any] | Exception  # an exception is the answer to one request, and no fault of the others


class Batcher:
    """A queue in front of a model that runs in one thread, with at most so many requests in one call."""

    def __init__(self, answer: Callable[[list[Any]], list[Answer]], most: int) -> None:
        self.answer, self.most = answer, most
        self.waiting: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        self.thread = ThreadPoolExecutor(1)

    async def ask(self, request: Any) -> dict[str, Any]:
        """Return the answer to a request, or raise the exception that is its answer."""
        reply = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((request, reply))
        return await reply

    async def run(self) -> None:
        """Answer what waits, for as long as the event loop runs."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect()
            requests = [request for request, _ in batch]
            answers = await loop.run_in_executor(self.thread, self.answer, requests)
            for (_, reply), answer in zip(batch, answers, strict=True):
                if reply.done():  # the time of the request is over
                    continue
                if isinstance(answer, Exception):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)

    async def _collect(self) -> list[tuple[Any, asyncio.Future[Any]]]:
        """Wait for a request, and take what has come with it; no request waits for others to come."""
        batch = [await self.waiting.get()]
        while len(batch) < self.most and not self.waiting.empty():
            batch.append(self.waiting.get_nowait())
        return [(request, reply) for request, reply in batch if not reply.done()]


WEB = Path(__file__).parent / "web"
FORM_FIELDS = 16
ADVICE = re.compile(r"[;:] [^;:]*\bdata\..*")  # on settings, for the command line


def create_app(options: ServeOptions) -> Starlette:
    """Load the model and return the application, or end the process with a line on why the server can't start."""
    threading.Thread(target=_end_with_server, daemon=True).start()
    use_package(options.package)
    try:
        from litlab.commands.serve.model import load_model  # not in the process that only listens

        model = load_model(options.run, options.settings, options.workers)
    except Exception as error:
        from litlab.cli.messages import describe_error

        print(f"error: {describe_error(error) or traceback.format_exc()}", file=sys.stderr, flush=True)
        time.sleep(0.2)  # to answer the supervisor's ping, or it would wait for this process long after it has ended
        os._exit(STARTUP_FAILURE)  # a slow end would look like a worker that hangs
    gc.freeze()  # or collections would look through all of torch, while requests wait
    host = f"[{options.host}]" if ":" in options.host else options.host
    known = f"{model.manifest['run']['name']} ({model.manifest['kind']}, {model.manifest['format']})"
    print(f"Serving {known} at http://{host}:{options.port}", flush=True)
    return build_app(model.manifest, model.answer, options)


def _end_with_server() -> None:
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os.kill(os.getpid(), signal.SIGTERM)


def build_app(manifest: Mapping[str, Any], answer: Callable[..., list[Answer]], options: ServeOptions) -> Starlette:
    interface = Interface(manifest, answer, options)
    local = ["localhost", "127.0.0.1", "[::1]", options.host]  # somebody's page could call this machine by another name
    routes = [
        Route("/", interface.show_page),
        Route("/health", interface.tell_health),
        Route("/info", interface.tell_info),
        Route("/predict", interface.predict, methods=["POST"]),
        Mount("/web", StaticFiles(directory=WEB)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["*"] if options.token else local)],
        exception_handlers=dict.fromkeys(
            [HTTPException, UserError, UnicodeError, ClientDisconnect, Exception], tell_error
        ),
        lifespan=interface.keep_answering,
    )


class Interface:
    """The addresses of the server."""

    def __init__(self, manifest: Mapping[str, Any], answer: Callable[..., list[Answer]], options: ServeOptions) -> None:
        self.manifest, self.options = manifest, options
        self.batcher = Batcher(answer, options.batch_size)
        self.inside = 0  # requests, from the reading of their bodies to their answers

    @contextlib.asynccontextmanager
    async def keep_answering(self, app: Starlette) -> AsyncIterator[None]:
        answering = asyncio.create_task(self.batcher.run())
        yield
        answering.cancel()

    async def show_page(self, request: Request) -> Response:
        return FileResponse(WEB / "page.html")

    async def tell_health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def tell_info(self, request: Request) -> Response:
        self._check_token(request)
        return JSONResponse(self.manifest)

    async def predict(self, request: Request) -> Response:
        self._check_token(request)
        if self.inside >= self.options.queue:
            raise HTTPException(503, f"{self.inside} requests wait already; try again later", {"Retry-After": "1"})
        self.inside += 1
        try:
            async with asyncio.timeout(self.options.timeout):
                fields = await read_fields(request, int(1e6 * self.options.max_mb))
                answer = await self.batcher.ask(fields)
        except TimeoutError:
            raise HTTPException(504, f"there was no answer within {self.options.timeout:g} seconds") from None
        finally:
            self.inside -= 1
        return JSONResponse(answer)

    def _check_token(self, request: Request) -> None:
        if self.options.token is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self.options.token.encode()):
            message = "the token is missing or wrong; send the header 'Authorization: Bearer TOKEN'"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


async def read_fields(request: Request, most_bytes: int) -> dict[str, Any]:
    """Read a body, JSON or a form, as fields by their names. Files are bytes."""
    # Of what is too large the rest is dropped, as most clients read no answer before they have sent all.
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most_bytes:
            body += chunk
    if size > most_bytes:
        raise HTTPException(413, f"the body has more than {most_bytes:,} bytes")

    if request.headers.get("content-type", "").lower().startswith("application/json"):
        return parse_json(body)

    async def replay() -> Message:
        return {"type": "http.request", "body": bytes(body)}

    copy = Request(request.scope, replay)
    async with copy.form(max_files=1, max_fields=FORM_FIELDS, max_part_size=most_bytes) as form:
        items = form.items()
        return {name: await value.read() if isinstance(value, UploadFile) else value for name, value in items}


def parse_json(body: bytearray) -> dict[str, Any]:
    try:
        content = json.loads(body.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON in UTF-8 ({first_line(error)})") from None
    if not isinstance(content, dict):
        raise HTTPException(400, "the body must be a JSON object, such as {...}")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON; send null for one that is missing")


async def tell_error(request: Request, error: Exception) -> Response:
    """Return the response to a request that is not answered. After a bug uvicorn logs the traceback."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    if isinstance(error, UserError | UnicodeError):  # halves of characters, or other bytes than UTF-8
        return JSONResponse({"error": ADVICE.sub("", str(error))}, 422)
    return JSONResponse({"error": "the server failed to answer this request; its log says more"}, 500)
