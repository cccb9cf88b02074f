"""ASGI middleware: ids adopted or made, one access record a request, the ids in the answer.

app.add_middleware(AsgiMiddleware)      # Starlette, FastAPI
app = AsgiMiddleware(app)               # any other
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

from everyturn.sdk.incoming import PROBES, Incoming
from everyturn.sdk.process import this_process
from everyturn.sdk.spans import REQUEST_HEADER, STATE_HEADER, TRACE_HEADER, TURN_HEADER

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiMiddleware:
    """Wraps an ASGI application.

    probes: paths that are counted and not recorded.
    path_template: the route of a scope, never the path as sent, which may hold anything; by
        default the `path` of what the router left in `scope["route"]`.
    """

    def __init__(
        self,
        app: App,
        *,
        probes: Collection[str] = PROBES,
        path_template: Callable[[Scope], str | None] | None = None,
    ) -> None:
        self.app = app
        self._probes = frozenset(probes)
        self._path_template = path_template or route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; what is not HTTP passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] in self._probes:
            this_process().counters.add("probes")
            await self.app(scope, receive, send)
            return
        incoming = _incoming(scope)
        echo = [(name.encode(), value.encode()) for name, value in incoming.echo()]
        status: int | None = None
        is_recorded = False

        def record(error_code: str | None = None) -> None:
            nonlocal is_recorded
            if not is_recorded:
                is_recorded = True
                incoming.record(
                    path_template=self._path_template(scope), status=status, error_code=error_code
                )

        async def receive_counted() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                incoming.request_bytes += len(message.get("body", b""))
            return message

        async def send_echoed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _with(message.get("headers", ()), echo)}
            await send(message)
            if message["type"] == "http.response.body":
                incoming.response_bytes += len(message.get("body", b""))
                if not message.get("more_body", False):
                    record()  # Work that goes on behind the answer is no part of the request.

        try:
            with incoming:
                await self.app(scope, receive_counted, send_echoed)
        except BaseException as failure:
            # The server answers 500 behind us where no answer began.
            if status is None and isinstance(failure, Exception):
                status = 500
            record(type(failure).__name__)
            raise
        record()


def route_of(scope: Scope) -> str | None:
    """The template of the route that was found, as Starlette and FastAPI leave it in the scope."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else None


def _incoming(scope: Scope) -> Incoming:
    values: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        values.setdefault(name, []).append(value.decode("latin-1"))

    def of(name: str) -> list[str]:
        return values.get(name.encode(), [])

    return Incoming(
        method=scope["method"],
        traceparent=of(TRACE_HEADER),
        tracestate=of(STATE_HEADER),
        turn_ids=of(TURN_HEADER),
        request_ids=of(REQUEST_HEADER),
    )


def _with(
    headers: Iterable[tuple[bytes, bytes]], echo: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """The response headers with our own, but for those that the application set itself."""
    given = list(headers)
    names = {name.lower() for name, _ in given}
    return [*given, *((name, value) for name, value in echo if name not in names)]
