"""What stands before all routes: the token, the host, and headers that every response has."""

import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from litlab.commands.serve.refusal import Refusal

OPEN = ("/", "/health", "/docs")  # without a token: the page says nothing of the model
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Guard:
    """Lets requests through that may come in.

    Args:
        app: The application.
        token: What a client must know; None: nobody is asked.
        hosts: Names by which clients must call the server; None: any. Somebody else's page can make a browser call
            this machine by a name of its own, and then read the answers.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: frozenset[str] | None) -> None:
        self.app, self.hosts = app, hosts
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it before its body is read."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, with_headers)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(refusal.body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        await with_headers({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await with_headers({"type": "http.response.body", "body": refusal.body})

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if self.hosts is not None and _name(headers.get(b"host", b"").decode("latin-1")) not in self.hosts:
            return Refusal(403, "this server answers only if it is called by the name localhost")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if self.hosts is not None and origin and _name(origin.partition("://")[2]) not in self.hosts:
            return Refusal(403, "this server answers its own page only, not those of others")
        if self._token is None or scope["path"] in OPEN:
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        what = "wrong" if given else "missing"
        message = f"the token is {what}; send the header 'Authorization: Bearer TOKEN'"
        return Refusal(401, message, {"WWW-Authenticate": "Bearer"})


def _name(host: str) -> str:
    """Return a ``Host`` without its port."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0].lower()
