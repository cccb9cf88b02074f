"""WSGI middleware: ids adopted or made, one access record a request, the ids in the answer.

app.wsgi_app = WsgiMiddleware(app.wsgi_app)     # Flask
application = WsgiMiddleware(application)       # any other
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import Context, copy_context
from typing import Any

from everyturn.sdk.incoming import PROBES, Incoming
from everyturn.sdk.process import this_process
from everyturn.sdk.spans import REQUEST_HEADER, STATE_HEADER, TRACE_HEADER, TURN_HEADER

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WsgiMiddleware:
    """Wraps a WSGI application.

    probes: paths that are counted and not recorded.
    path_template: the route of an environment, never the path as sent; by default what a router
        left in `everyturn.path_template`.
    """

    def __init__(
        self,
        app: App,
        *,
        probes: Collection[str] = PROBES,
        path_template: Callable[[Environ], str | None] | None = None,
    ) -> None:
        self.app = app
        self._probes = frozenset(probes)
        self._path_template = path_template or route_of

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        if environ.get("PATH_INFO", "") in self._probes:
            this_process().counters.add("probes")
            return self.app(environ, start_response)
        # A context of its own: the server's thread serves other requests before this body ends.
        answer = _Answer(environ, self._path_template)
        return answer.begin(self.app, start_response)


class _Answer:
    """The body of an answer, which is produced and counted inside of the request's context."""

    def __init__(self, environ: Environ, path_template: Callable[[Environ], str | None]) -> None:
        self._environ = environ
        self._path_template = path_template
        self._incoming = _incoming(environ)
        self._context: Context = copy_context()
        self._status: int | None = None
        self._body: Iterable[bytes] = ()
        self._iterator: Iterator[bytes] = iter(())
        self._is_recorded = False

    def begin(self, app: App, start_response: StartResponse) -> Iterable[bytes]:
        def started(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> Callable[[bytes], object]:
            self._status = int(status[:3])
            names = {name.lower() for name, _ in headers}
            mine = [(name, value) for name, value in self._incoming.echo() if name not in names]
            write = start_response(status, [*headers, *mine], exc_info)

            def write_counted(data: bytes) -> object:
                self._incoming.response_bytes += len(data)
                return write(data)

            return write_counted

        try:
            self._context.run(self._incoming.__enter__)
            self._body = self._context.run(app, self._environ, started)
            self._iterator = iter(self._body)
        except BaseException as failure:
            self._end(failure)
            raise
        return self

    def __iter__(self) -> _Answer:
        return self

    def __next__(self) -> bytes:
        try:
            part = self._context.run(next, self._iterator)
        except StopIteration:
            raise
        except BaseException as failure:
            self._end(failure)
            raise
        self._incoming.response_bytes += len(part)
        return part

    def close(self) -> None:
        """Called by the server when the answer was sent, and when it could not be."""
        close = getattr(self._body, "close", None)
        try:
            if close is not None:
                self._context.run(close)
        finally:
            self._end(None)

    def _end(self, failure: BaseException | None) -> None:
        if self._is_recorded:
            return
        self._is_recorded = True
        self._context.run(self._incoming.__exit__, None, None, None)
        if failure is not None and self._status is None:
            self._status = 500  # What the server answers behind us.
        self._incoming.record(
            path_template=self._path_template(self._environ),
            status=self._status,
            error_code=None if failure is None else type(failure).__name__,
        )


def route_of(environ: Environ) -> str | None:
    """The template of the route, where an application said it."""
    path = environ.get("everyturn.path_template")
    return path if isinstance(path, str) else None


def _incoming(environ: Environ) -> Incoming:
    def of(name: str) -> list[str]:
        value = environ.get(f"HTTP_{name.upper().replace('-', '_')}")
        return [value] if isinstance(value, str) else []

    incoming = Incoming(
        method=environ.get("REQUEST_METHOD", ""),
        traceparent=of(TRACE_HEADER),
        tracestate=of(STATE_HEADER),
        turn_ids=of(TURN_HEADER),
        request_ids=of(REQUEST_HEADER),
    )
    length = environ.get("CONTENT_LENGTH") or "0"
    incoming.request_bytes = int(length) if length.isascii() and length.isdigit() else 0
    return incoming
