"""A client's connection: HTTP/1.1 within bounds, and every refusal a typed answer.

What uvicorn's server makes of each client, in place of uvicorn's own protocol, which costs more and
leaves more open. Bytes without content (heads, trailers, chunk extensions) and the time
a client may take are bounded. What is no HTTP goes to the application as a request with a fault,
so that it is answered and recorded like any other. An offer to upgrade the protocol, but for the
WebSockets of workers, is passed over and the request served, as RFC 9110 section 7.8 allows: Java's
client makes it with every request. A client of HTTP/1.0 gets no chunks.

Rests on httptools (llhttp) for the framing. A protocol of asyncio by its methods, without the base
class. Requests that come before the answer to an earlier one wait behind it; the socket is read
meanwhile, for a client that leaves is only seen there, until enough of them wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import lru_cache
from math import inf
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from everyturn.errors import Failure, GatewayStopping, InvalidValue, RequestTooLarge
from everyturn.gateway.known_head import KnownHead
from everyturn.gateway.request import REQUEST, ClientRequest, Field, Patience
from everyturn.transport.deadlines import Deadlines

SILENT_BYTES_MAX: Final = 64 * 1024
"""Bytes that a client may send without completing a head or bringing content; one read may go
beyond. nginx takes 32 KiB of head, Node 16."""
UNREAD_BYTES_MAX: Final = 64 * 1024
"""Of a body, at which the socket is no longer read; one read may go beyond."""
WAITING_MAX: Final = 8
"""Requests behind the one that is answered, at which the socket is no longer read; one read may go
beyond."""

_FRAMING: Final = (b"content-length", b"transfer-encoding")
PATIENCE: Final = Patience()


class ClientConnection:
    """One connection of a client, for all of its requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        patience: Patience = PATIENCE,
    ) -> None:
        """As uvicorn's server makes it."""
        self.patience = patience
        self._config = config
        self._app = config.loaded_app
        self._app_state = app_state
        self._state = server_state
        self._keep_alive_s = config.timeout_keep_alive
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.flow: FlowControl
        self._parser: Any = httptools.HttpRequestParser(self)
        # So that a request is answered before what follows it is refused.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._deadlines = Deadlines(self.loop)
        self.deadline = inf
        """When the client must have sent a whole head, on the loop's clock."""
        self._is_resting = False
        """Nothing of a further request has come since the last answer."""
        self._url = b""
        self._headers: list[Field] = []
        self._newest: ClientRequest | None = None
        """The request that came last, whose body may still arrive."""
        self._answering: ClientRequest | None = None
        """The request whose answer is due; later ones wait behind it."""
        self._idle: asyncio.Future[ClientRequest] | None = None
        """Where a task that served a request waits for the next."""
        self._waiting: deque[ClientRequest] = deque()
        self._silent_bytes = 0
        """Bytes since a head was complete or content came."""
        self._has_progressed = False
        """Whether the present read completed a head or brought content."""
        self._is_in_body = False
        """A head is complete and its message is not."""
        self._is_between = True
        """No further request has begun since the last was complete."""
        self._known: KnownHead | None = None
        """The head of the last request that came whole."""
        self._is_deaf = False
        """Nothing more is read: what came was no HTTP, or too much of it."""
        self._is_repeating = False
        """A head is fed again that the application has already."""
        self._date: list[Field] = []
        self._date_line = b""

    # ------------------------------------------------------------------- callbacks of the network

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client has connected."""
        self._connections().add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self._deadlines.add(self)
        self._expect_head(self.patience.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, for the request that is answered and for those behind it."""
        self._connections().discard(self)
        self._end_waits()
        for request in (self._answering, self._newest):
            if request is not None:
                request.lose()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self._parser = None  # It holds our bound methods: this breaks the cycle.

    def eof_received(self) -> None:
        """The client closed its side, which ends the connection."""

    def pause_writing(self) -> None:
        """The client leaves much unread."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """The client has read on."""
        self.flow.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Bytes of a client."""
        if self._is_deaf:
            return
        if self._is_resting:
            self._is_resting = False
            self.deadline = inf
        if self._is_between:
            known = self._known
            if known is not None and self._is_known(known, data):
                return
        is_first = self._is_between
        self._has_progressed = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self._hand_over()
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
            newest = self._newest
            assert newest is not None  # A head came, now or before.
            if newest.is_answered:
                self._rest()
            elif is_first and self._is_between:
                self._known = KnownHead.of(newest, data)
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
        elif self.deadline == inf and not self._is_in_body:
            self._expect_head(self.patience.head_s)

    # -------------------------------------------------------------------- callbacks of the parser

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if not self._is_repeating:
            self._is_between = False
            self._url = b""
            self._headers = []

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        if not self._is_repeating:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer, which comes inside the body, is of no use to anybody here."""
        if not self._is_in_body:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """A head is complete: the request goes to the application."""
        if self._is_repeating:
            return
        parser = self._parser
        if parser.should_upgrade() and self._should_upgrade():
            return  # `data_received` hands the connection to the WebSocket protocol.
        request = ClientRequest(self, self._headers, dict(self._headers))
        request.method = parser.get_method().decode("ascii")
        request.path, request.query = parts_of(self._url)
        request.is_old = parser.get_http_version() == "1.0"
        request.keep_alive = not request.is_old and parser.should_keep_alive()
        self._known = None  # What it says of the connection may have changed.
        self._has_progressed = self._is_in_body = True
        self.deadline = inf
        self._open(request)

    def on_body(self, body: bytes) -> None:
        """Content, without framing."""
        self._has_progressed = True
        request = self._newest
        assert request is not None  # Its head came before.
        if not request.is_answered:
            request.feed(body)
            if request.unread_bytes > UNREAD_BYTES_MAX:
                self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """A request is complete, unless the parser only left it to another protocol."""
        if self._parser.should_upgrade():
            return
        self._has_progressed = self._is_between = True
        self._is_in_body = False
        request = self._newest
        assert request is not None  # Its head came before.
        if not request.is_answered:
            request.has_more = False
            request.wake()

    # ------------------------------------------------------------------------------------ requests

    def _is_known(self, known: KnownHead, data: bytes) -> bool:
        """Take a request without parsing it, if its head is one that the parser has read."""
        body_bytes = known.length_in(data)
        if not body_bytes:
            return False
        length = b"%d" % body_bytes
        request = ClientRequest(self, known.headers_with(length), known.named_with(length))
        request.method = known.method
        request.path = known.path
        request.query = known.query
        request.keep_alive = True
        self._silent_bytes = 0
        self.deadline = inf
        self._open(request)
        body = data[-body_bytes:]
        request.feed(body)
        if len(body) > UNREAD_BYTES_MAX:
            self.flow.pause_reading()
        request.has_more = False
        return True

    def _open(self, request: ClientRequest) -> None:
        """Hand a request to the application: now, or after the requests before it."""
        before = self._newest
        self._newest = request
        if before is None or before.is_answered:
            self._start(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) >= WAITING_MAX:
                self.flow.pause_reading()

    def _start(self, request: ClientRequest) -> None:
        self._answering = request
        idle = self._idle
        if idle is not None and not idle.done():
            self._idle = None
            idle.set_result(request)
        else:
            self._state.tasks.add(self.loop.create_task(self._serve(request)))

    async def _serve(self, request: ClientRequest) -> None:
        """Run the application for a request, and for one after the other that comes when it has
        ended: most connections need one task for all. It answers its own failures."""
        task = cast(asyncio.Task[None], asyncio.current_task())
        tasks = self._state.tasks
        is_well = True
        while is_well:
            request.task = task
            tasks.add(task)
            try:
                await self._app({"type": "http", REQUEST: request}, _no_receive, _no_send)
                if not request.is_answered and not request.is_gone:
                    raise RuntimeError("the application did not complete its answer")
            except BaseException as bug:
                is_well = False
                logging.getLogger("uvicorn.error").error("Exception in application", exc_info=bug)
                self._give_up(request)
            finally:
                tasks.discard(task)
            if self._idle is not None or self._parser is None:
                return  # Another waits for the next request, or none can come.
            if is_well:
                self._idle = self.loop.create_future()
                request = await self._idle

    def _give_up(self, request: ClientRequest) -> None:
        """End a request that the application left open."""
        if request.is_started:
            self.transport.close()
            return
        request.keep_alive = False
        text = b"Internal Server Error"
        head = request.head(500, b"content-type: text/plain; charset=utf-8\r\n", (), length=21)
        request.send(head, text, is_last=True)

    def on_answered(self) -> None:
        """The answer that was due is complete."""
        self._state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._waiting:
            self._start(self._waiting.popleft())
        elif self.deadline == inf:  # Else a further head has begun, which has a time of its own.
            self._rest()
        self.read_on()

    def read_on(self) -> None:
        """Read the socket again, unless enough requests wait already."""
        flow = self.flow
        if flow.read_paused and len(self._waiting) < WAITING_MAX:
            flow.resume_reading()

    def _rest(self) -> None:
        """No answer is due: a further request has its time, or what is left of a body that was not
        wanted and is passed over."""
        self._is_resting = not self._is_in_body
        self._expect_head(self.patience.body_s if self._is_in_body else self._keep_alive_s)

    def date_line(self) -> bytes:
        """The headers that the server sends with every answer: the date, of this second."""
        headers = self._state.default_headers
        if headers is not self._date:
            self._date = headers
            self._date_line = b"".join([b"%b: %b\r\n" % field for field in headers])
        return self._date_line

    # ------------------------------------------------------------------------------------ upgrades

    def _should_upgrade(self) -> bool:
        """Whether the request offers WebSockets, and somebody is there to speak them."""
        if self._config.ws_protocol_class is None:
            return False
        named = dict(self._headers)
        tokens = [token.strip() for token in named.get(b"connection", b"").lower().split(b",")]
        return b"upgrade" in tokens and named.get(b"upgrade", b"").lower() == b"websocket"

    def _hand_over(self) -> None:
        """Leave the connection to the WebSocket protocol, with the head of the request."""
        self._end_waits()
        self._connections().discard(self)
        head = [self._parser.get_method(), b" ", self._url, b" HTTP/1.1\r\n"]
        head += [b"%b: %b\r\n" % field for field in self._headers]
        head.append(b"\r\n")
        made: Any = self._config.ws_protocol_class
        protocol = made(config=self._config, server_state=self._state, app_state=self._app_state)
        protocol.connection_made(self.transport)
        protocol.data_received(b"".join(head))
        self.transport.set_protocol(protocol)

    def _pass_over_upgrade(self) -> None:
        """Read on as if no upgrade had been offered.

        The parser ends such a request with its head. A new one gets the head again, without the
        offer, and then the body.
        """
        head = b"".join(b"%b: %b\r\n" % field for field in self._headers if field[0] in _FRAMING)
        self._parser = httptools.HttpRequestParser(self)
        self._is_repeating = True
        try:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        finally:
            self._is_repeating = False

    # ---------------------------------------------------------------------------------------- ends

    def _refuse(self, failure: Failure) -> None:
        """Answer what cannot be read with `failure`, and read no more."""
        self._is_deaf = True
        newest = self._newest
        if self._is_in_body:
            self._break_off(failure)
        elif newest is not None and not newest.is_answered:
            newest.keep_alive = False  # An answer that runs is not broken into.
        else:
            self.deadline = inf
            request = ClientRequest(self, [], {})
            request.break_off(failure)
            self._open(request)

    def _break_off(self, failure: Failure) -> None:
        """End a request inside its body."""
        request = self._newest
        assert request is not None  # A body has one.
        if request.is_answered:
            self.transport.close()
        else:
            request.break_off(failure)

    def cut_off(self) -> None:
        """The gateway stops: a request that has not arrived yet is refused."""
        if self._is_in_body:
            self._is_deaf = True
            self._break_off(GatewayStopping("the gateway is shutting down", retry_after_ms=1000))

    def shutdown(self) -> None:
        """The server stops: no request after the present one."""
        newest = self._newest
        if newest is None or newest.is_answered:
            self.transport.close()
        else:
            newest.keep_alive = False

    def _expect_head(self, seconds: float) -> None:
        """A whole head must have come in `seconds`."""
        self.deadline = self.loop.time() + seconds
        self._deadlines.watch(self.deadline)

    def expire(self) -> None:
        """No head came in time (called by `Deadlines`)."""
        self.deadline = inf
        if self._newest is None or self._newest.is_answered:
            self.transport.close()

    def _end_waits(self) -> None:
        """No further request is served here."""
        self._deadlines.close()
        if self._idle is not None:
            self._idle.cancel()

    def _connections(self) -> set[Any]:
        """All connections of the server, which knows them by what uvicorn's own have too."""
        return self._state.connections


@lru_cache(maxsize=64)
def parts_of(url: bytes) -> tuple[str, bytes]:
    """Path, percent-decoded, and query of a request's target. Cached: clients ask for the same.

    Raises HttpParserInvalidURLError and UnicodeDecodeError.
    """
    # Its stubs leave out that a part may be None; compiled code would believe them.
    parsed: Any = httptools.parse_url(url)
    path = (parsed.path or b"/").decode("ascii")
    return (unquote(path) if "%" in path else path), parsed.query or b""


async def _no_receive() -> Any:
    raise RuntimeError("a request is read by itself: see `REQUEST`")


async def _no_send(_message: Any) -> None:
    raise RuntimeError("a request is answered by itself: see `REQUEST`")
