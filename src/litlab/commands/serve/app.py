"""The HTTP interface of each worker process: addresses, bodies, and what goes wrong as JSON with
one sentence.
"""

import asyncio
import hmac
import json
import re
import signal
import sys
from collections.abc import Mapping
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

from litlab.commands.serve.batcher import Batcher
from litlab.commands.serve.options import ServeOptions
from litlab.errors import UserError, first_line

WEB = Path(__file__).parent / "web"
FORM_FIELDS = 16
ADVICE = re.compile(r"[;:] [^;:]*\bdata\..*")  # on settings, for the command line


def build_app(manifest: Mapping[str, Any], batcher: Batcher, options: ServeOptions) -> Starlette:
    interface = Interface(manifest, batcher, options)
    # somebody's page could call this machine by another name
    local = ["localhost", "127.0.0.1", "[::1]", options.host]
    routes = [
        Route("/", interface.show_page),
        Route("/health", interface.tell_health),
        Route("/info", interface.tell_info),
        Route("/predict", interface.predict, methods=["POST"]),
        Mount("/web", StaticFiles(directory=WEB)),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["*"] if options.token else local)
        ],
        exception_handlers=dict.fromkeys(
            [HTTPException, UserError, UnicodeError, ClientDisconnect, Exception], tell_error
        ),
    )


class Interface:
    """The addresses of the server."""

    def __init__(
        self, manifest: Mapping[str, Any], batcher: Batcher, options: ServeOptions
    ) -> None:
        self.manifest, self.batcher, self.options = manifest, batcher, options
        self.inside = 0  # requests, from the reading of their bodies to their answers

    async def show_page(self, request: Request) -> Response:
        return FileResponse(WEB / "page.html")

    async def tell_health(self, request: Request) -> Response:
        if not self.batcher.thread.is_alive() or self.batcher.measure_call() > self.options.timeout:
            raise HTTPException(
                503, f"the model has not answered for {self.options.timeout:g} seconds"
            )
        return JSONResponse({"status": "ok"})

    async def tell_info(self, request: Request) -> Response:
        self._check_token(request)
        return JSONResponse(self.manifest)

    async def predict(self, request: Request) -> Response:
        self._check_token(request)
        if self.inside >= self.options.queue:
            raise HTTPException(
                503, f"{self.inside} requests wait already; try again later", {"Retry-After": "1"}
            )
        self.inside += 1
        limit = asyncio.timeout(self.options.timeout)
        try:
            async with limit:
                fields = await read_fields(request, int(1e6 * self.options.max_mb))
                answer = await self.batcher.ask(fields)
        except TimeoutError:
            if not limit.expired():  # the model's own
                raise
            self._end_if_stuck()
            raise HTTPException(
                504, f"there was no answer within {self.options.timeout:g} seconds"
            ) from None
        finally:
            self.inside -= 1
        return JSONResponse(answer)

    def _end_if_stuck(self) -> None:
        """End this worker if nobody waits any longer for what its model does; uvicorn starts
        another.
        """
        seconds = self.batcher.measure_call()
        if seconds > 2 * self.options.timeout:
            line = f"the model has not answered for {seconds:.0f} seconds; its worker is replaced"
            print(line, file=sys.stderr, flush=True)
            signal.raise_signal(signal.SIGTERM)

    def _check_token(self, request: Request) -> None:
        if self.options.token is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            token.strip().encode(), self.options.token.encode()
        ):
            message = "the token is missing or wrong; send the header 'Authorization: Bearer TOKEN'"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


async def read_fields(request: Request, most_bytes: int) -> dict[str, Any]:
    """Read a body, JSON or a form, as fields by their names. Files are bytes."""
    # Of what is too large the rest is dropped, as most clients read no answer before they have sent
    # all.
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
        return {
            name: await value.read() if isinstance(value, UploadFile) else value
            for name, value in items
        }


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
    """Return the response to a request that is not answered. After a bug uvicorn logs the
    traceback.
    """
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)
    # Halves of characters, or other bytes than UTF-8
    if isinstance(error, UserError | UnicodeError):
        return JSONResponse({"error": ADVICE.sub("", str(error))}, 422)
    return JSONResponse(
        {"error": "the server failed to answer this request; its log says more"}, 500
    )
