"""A client's connection: uvicorn's HTTP/1.1, within bounds, and every refusal a typed answer.

uvicorn reads and writes; this adds what it leaves open. Bytes without content (heads, trailers,
chunk extensions) and the time a client may take are bounded. What is no HTTP goes to the
application as a request with a fault, so that it is answered and recorded like any other. An offer
to upgrade the protocol, but for the WebSockets of workers, is passed over and the request served,
as RFC 9110 section 7.8 allows: Java's client makes it with every request. A client of HTTP/1.0
gets no chunks.

Rests on uvicorn's `HttpToolsProtocol`, whose `self.cycle` is the newest request of a connection.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from everyturn.errors import Failure, GatewayStopping, InvalidValue, RequestTooLarge
from everyturn.gateway.http import FAULT

SILENT_BYTES_MAX: Final = 64 * 1024
"""Bytes that a client may send without completing a head or bringing content; one read may go
beyond. nginx takes 32 KiB of head, Node 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a client may take, in seconds."""

    head_s: float = 60.0
    """For a head, from the connection or the first byte on; as nginx has it."""
    body_s: float = 60.0
    """Between two reads of a body; as nginx has it."""
    unread_s: float = 300.0
    """Until it reads on, before it counts as gone. nginx gives it 60 seconds; a person who steps
    through a program reads more slowly."""


_FRAMING: Final = (b"content-length", b"transfer-encoding")


class ClientConnection(HttpToolsProtocol):
    """One connection of a client, for all of its requests."""

    patience: ClassVar = Patience()
    _silent_bytes = 0
    """Bytes since a head was complete or content came."""
    _has_progressed = False
    """Whether the present read completed a head or brought content."""
    _is_in_body = False
    """A head is complete and its message is not."""
    _is_deaf = False
    """Nothing more is read: what came was no HTTP, or too much of it."""
    _is_repeating = False
    """A head is fed again that the application has already."""
    _answering: RequestResponseCycle | None = None
    """The request whose answer is due; later ones wait behind it."""
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.patience.head_s, self._expire_head)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, for the request that is answered and for those behind it."""
        self._stop_head_timer()
        answering = self._answering
        if answering is not None and not answering.response_complete:
            answering.disconnected = True
            answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a client."""
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        self._has_progressed = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self._stop_head_timer()
                self.handle_websocket_upgrade()
                return
            self._pass_over_upgrade()
            rest = data[offer.args[0] :]
            if rest:
                self.data_received(rest)
            return
        except httptools.HttpParserError:
            self._refuse(
                InvalidValue(
                    "the request is not what HTTP/1.1 allows",
                    hint="Send it with an HTTP client, and speak plain HTTP/1.1, no TLS, here.",
                )
            )
            return
        if self._has_progressed:
            self._silent_bytes = 0
            return
        self._silent_bytes += len(data)
        if self._silent_bytes > SILENT_BYTES_MAX:
            self._refuse(
                RequestTooLarge(
                    f"the head is larger than the limit in bytes: {SILENT_BYTES_MAX}",
                    status=431,
                    hint="Send fewer or shorter headers.",
                )
            )
        elif self._head_timer is None and not self._is_in_body:
            self._head_timer = self.loop.call_later(self.patience.head_s, self._expire_head)

    # -------------------------------------------------------------------- callbacks of the parser

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if not self._is_repeating:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        if not self._is_repeating:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer, which comes inside the body, is of no use to anybody here."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is complete: the request goes to the application."""
        if self._is_repeating:
            return
        self.scope["method"] = self.parser.get_method().decode("ascii")
        if self.parser.should_upgrade() and self._should_upgrade():
            return  # `data_received` hands the connection to the WebSocket protocol.
        url = httptools.parse_url(self.url)
        raw_path = url.path or b"/"
        path = raw_path.decode("ascii")
        version = self.parser.get_http_version()
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = raw_path
        self.scope["query_string"] = url.query or b""
        self._has_progressed = self._is_in_body = True
        self._stop_head_timer()
        self._open(keep_alive=version != "1.0" and self.parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        """Content, without framing."""
        self._has_progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete, unless the parser only left it to another protocol."""
        if self.parser.should_upgrade():
            return
        self._has_progressed = True
        self._is_in_body = False
        super().on_message_complete()

    # ------------------------------------------------------------------------------------ requests

    def _open(self, *, keep_alive: bool) -> None:
        """Hand `self.scope` to the application: now, or after the requests before it."""
        before = self.cycle
        self.cycle = cycle = _Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.patience = self.patience
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _pass_over_upgrade(self) -> None:
        """Read on as if no upgrade had been offered.

        The parser ends such a request with its head. A new one gets the head again, without the
        offer, and then the body.
        """
        head = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] in _FRAMING)
        self.parser = httptools.HttpRequestParser(self)
        self._is_repeating = True
        try:
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        finally:
            self._is_repeating = False

    def _refuse(self, failure: Failure) -> None:
        """Answer what cannot be read with `failure`, and read no more."""
        self._is_deaf = True
        cycle = self.cycle
        if self._is_in_body:
            self._break_off(failure)
        elif cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False  # An answer that runs is not broken into.
        else:
            self.on_message_begin()
            self.scope.update(
                {"method": "UNKNOWN", "path": "", "raw_path": b"", "query_string": b""}
            )
            _fault(self.scope, failure)
            self._open(keep_alive=False)
            self.cycle.more_body = False

    def _break_off(self, failure: Failure) -> None:
        """End a request inside its body."""
        cycle = self.cycle
        if cycle.response_complete:
            self.transport.close()
            return
        _fault(cycle.scope, failure)
        cycle.more_body = cycle.keep_alive = False
        cycle.message_event.set()

    # ---------------------------------------------------------------------------------------- ends

    def cut_off(self) -> None:
        """The gateway stops: a request that has not arrived yet is refused."""
        if self._is_in_body:
            self._is_deaf = True
            self._break_off(GatewayStopping("the gateway is shutting down", retry_after_ms=1000))

    def _expire_head(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Cycle(RequestResponseCycle):
    """A request and its answer."""

    patience: Patience
    _head: ASGISendEvent | None = None
    """The head of the answer, until there is something to send with it."""

    async def receive(self) -> ASGIReceiveEvent:
        """The next part of the body, within `body_s` while there is more to come."""
        if not self.more_body:
            return await super().receive()
        try:
            async with asyncio.timeout(self.patience.body_s):
                return await super().receive()
        except TimeoutError:
            late = InvalidValue(
                "the body did not arrive in time",
                status=408,
                hint="Send the whole body, of the length that `content-length` says.",
            )
            _fault(self.scope, late)
            self.more_body = self.keep_alive = False
            return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the answer; a client that leaves it unread for `unread_s` is gone."""
        if self.flow.write_paused and not self.disconnected:
            try:
                async with asyncio.timeout(self.patience.unread_s):
                    await self.flow.drain()
            except TimeoutError:
                self.disconnected = True
                self.message_event.set()
                self.transport.abort()
        if self.scope["http_version"] == "1.0":
            # Chunks came with HTTP/1.1; the connection ends this body.
            self.chunked_encoding = False
            body: Any = message.get("body", b"")
            self.expected_content_length = len(body)
        if message["type"] == "http.response.start":
            self._head = message
            return
        head, self._head = self._head, None
        if head is None:
            await super().send(message)
            return
        transport = self.transport
        together = _Together()
        self.transport = together
        try:
            await super().send(head)
            await super().send(message)
        finally:
            self.transport = transport
        if not self.disconnected:
            transport.writelines(together.parts)
            if together.is_closed:
                transport.close()


class _Together(asyncio.Transport):
    """Takes the head of an answer and the first of its body, which leave in one packet."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.parts.append(data)

    def close(self) -> None:
        self.is_closed = True


def _fault(scope: Any, failure: Failure) -> None:
    scope.setdefault(FAULT, failure)
