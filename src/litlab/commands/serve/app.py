"""The HTTP interface: routes, and what goes wrong as JSON with one sentence."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from litlab.commands.serve.body import FORM, JSON, media_type, wrong_type
from litlab.commands.serve.guard import Guard
from litlab.commands.serve.limits import CHARACTERS, DROPPED, PIXELS, SECONDS_TO_READ, SERIES_ROWS, TABLE_ROWS
from litlab.commands.serve.openapi import openapi
from litlab.commands.serve.page import PAGE, POLICY
from litlab.commands.serve.pool import Pool
from litlab.commands.serve.refusal import Refusal, encoded

_KEPT = ("kind", "inputs", "outputs", "limits", "facts", "run", "format", "quantize", "metrics", "parity", "versions")


@dataclass(frozen=True)
class Access:
    """Who may use the server, and how large a body may be.

    Args:
        token: What a client must know; None: nobody is asked.
        hosts: Names by which clients must call the server; None: any.
        most_bytes: Of a body.
    """

    token: str | None
    hosts: frozenset[str] | None
    most_bytes: int


def create_app(pool: Pool, access: Access) -> Guard:
    """Return the application.

    Args:
        pool: Workers that are started.
        access: Who may use it.
    """
    interface = _Interface(pool, access)
    app = Starlette(
        routes=[
            Route("/", interface.page),
            Route("/health", interface.health),
            Route("/info", interface.info),
            Route("/predict", interface.predict, methods=["POST"]),
            Route("/openapi.json", interface.openapi),
            Route("/docs", interface.docs),
        ],
        exception_handlers={
            HTTPException: _http_error,
            Refusal: _refused,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, access.token, access.hosts)


class _Interface:
    def __init__(self, pool: Pool, access: Access) -> None:
        self.pool, self.access = pool, access
        self.about = {key: pool.manifest[key] for key in _KEPT if key in pool.manifest}
        self.description = encoded(openapi(pool.manifest, access.token is not None))

    async def page(self, request: Request) -> Response:
        return Response(PAGE, media_type="text/html", headers={"Content-Security-Policy": POLICY})

    async def docs(self, request: Request) -> Response:
        return RedirectResponse("/#programs")

    async def openapi(self, request: Request) -> Response:
        return Response(self.description, media_type=JSON)

    async def health(self, request: Request) -> Response:
        if not self.pool.ready:
            raise Refusal(503, "the model is being loaded again", {"Retry-After": "5"})
        return _json({"status": "ok", "workers": self.pool.ready})

    async def info(self, request: Request) -> Response:
        rules = self.pool.rules
        limits = {
            "body_bytes": self.access.most_bytes, "image_pixels": PIXELS, "text_characters": CHARACTERS,
            "series_rows": SERIES_ROWS, "table_rows": TABLE_ROWS, "requests": rules.queue,
            "batch_size": rules.batch_size, "seconds": rules.timeout,
        }  # fmt: skip
        server = {"workers": self.pool.ready, "inside": self.pool.inside, **asdict(self.pool.counts), "limits": limits}
        return _json({**self.about, "server": server})

    async def predict(self, request: Request) -> Response:
        content_type = request.headers.get("content-type", "")
        if media_type(content_type) not in (JSON, FORM):
            raise wrong_type(media_type(content_type))
        async with self.pool.place():
            body = await _read(request, self.access.most_bytes)
            reply = await self.pool.ask(content_type, body)
        return Response(reply.body, reply.status, media_type=JSON)


async def _read(request: Request, most: int) -> bytes:
    """Read a body, and keep no more of it than it may have.

    What is too large is read on for a while and dropped: most clients look for an answer only when they have sent all.

    Raises:
        Refusal: It is too large, too slow, or not there.
        ClientDisconnect: The client is gone.
    """
    close = {"Connection": "close"}
    too_large = Refusal(413, f"the body has more than {most:,} bytes", close)
    text = request.headers.get("content-length", "")
    announced = int(text) if text.isdecimal() else 0
    if announced > (most if "expect" in request.headers else DROPPED * most):  # the client waits for a word from here
        raise too_large
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(SECONDS_TO_READ):
            async for chunk in request.stream():
                size += len(chunk)
                if size > DROPPED * most:
                    raise too_large
                if max(size, announced) <= most:
                    body += chunk
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {SECONDS_TO_READ:g} seconds", close) from None
    if size > most:
        raise too_large
    if not body:
        raise Refusal(400, "the body is empty")
    return bytes(body)


def _json(content: Mapping[str, Any]) -> Response:
    return Response(encoded(dict(content)), media_type=JSON)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return Response(error.body, error.status, error.headers, media_type=JSON)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer what Starlette refuses: routes that are not there, and methods that a route has not."""
    assert isinstance(error, HTTPException)
    told = {
        404: "there is no such address; / is the page, /docs says more",
        405: f"{request.method} is not the method of this address",
    }
    refusal = Refusal(error.status_code, told.get(error.status_code, error.detail), dict(error.headers or {}))
    return await _refused(request, refusal)


async def _gone(request: Request, error: Exception) -> Response:
    """Answer nobody: the client has closed the connection while it sent the body."""
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> Response:
    """Answer after a bug, whose traceback goes to the log."""
    return await _refused(request, Refusal(500, "the server failed to answer this request; its log says more"))
