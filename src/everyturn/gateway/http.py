"""One HTTP exchange with a client: what came, what goes, and the facts an access record needs.

The connection owns HTTP (`connection`, `request`); this owns the meaning of headers and the size of
the body.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any, Final

from everyturn.audit.trace import TraceContext
from everyturn.errors import CallerFault, Failure, InvalidValue, RequestTooLarge
from everyturn.gateway.auth import ANYONE
from everyturn.gateway.request import REQUEST, ClientRequest, Field
from everyturn.wire.reader import write

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON_TYPE: Final = b"application/json"
SSE_TYPE: Final = b"text/event-stream; charset=utf-8"

_NOTE_SAFE: Final = re.compile(r"[^\x20-\x7e]")
NOTE_HEADER_BYTES_MAX: Final = 2048
"""Notes beyond this many bytes are counted in the header instead of told."""

CLIENT_TYPES: Final[tuple[tuple[str, str], ...]] = (
    ("openai/python", "openai-python"),
    ("asyncopenai/python", "openai-python"),
    ("openai/js", "openai-node"),
    ("ai-sdk/", "ai-sdk"),
    ("ai/", "ai-sdk"),
    ("langchain", "langchain"),
    ("litellm", "litellm"),
    ("everyturn", "everyturn"),
    ("curl/", "curl"),
    ("python-httpx", "httpx"),
    ("python-requests", "requests"),
    ("aiohttp", "aiohttp"),
    ("node", "node"),
    ("mozilla/", "browser"),
)
"""Part of a user agent, in lower case → `client_type`; the first that fits. Others are `other`."""


AGENT_BYTES_MAX: Final = 256
"""What of a user agent is looked at."""


@lru_cache(maxsize=1024)
def client_type_of(agent: bytes) -> str:
    """The kind of client that a user agent names. Cached: clients are few."""
    text = agent.decode("ascii", "backslashreplace").lower()
    return next((kind for part, kind in CLIENT_TYPES if part in text), "other")


NO_TRACE: Final = TraceContext(trace_id="0" * 32, span_id="0" * 16)
"""Stands in an exchange until its trace is known."""


class ClientGone(Exception):
    """The client closed its connection before its request was complete."""


class Exchange:
    """A request and its answer. Made for each HTTP request; used by one task."""

    __slots__ = (
        "_fields",
        "_head",
        "_request",
        "call_span_id",
        "error_code",
        "has_record",
        "has_request_id",
        "has_turn",
        "headers",
        "is_joining",
        "is_started",
        "method",
        "parent_span_id",
        "path",
        "principal",
        "query",
        "received_bytes",
        "request_id",
        "route",
        "sent_bytes",
        "started_at",
        "started_us",
        "status",
        "trace",
        "turn_id",
    )

    def __init__(self, scope: Scope) -> None:
        """scope: as the connection gives it; of a WebSocket's opening there is no request."""
        request: ClientRequest | None = scope.get(REQUEST)
        self._request = request
        self.headers: dict[bytes, bytes]
        """By their names in lower case; of one that stands more than once, the last."""
        if request is None:
            self.method = "GET"
            self.path: str = scope["path"]
            self.query: bytes = scope["query_string"]
            self._fields: list[Field] = scope["headers"]
            self.headers = dict(self._fields)
        else:
            self.method = request.method
            self.path = request.path
            self.query = request.query
            self._fields = request.headers
            self.headers = request.named
        self._head = b""
        """The head of the answer, until there is something to send with it."""
        self.started_at = time.perf_counter()
        self.started_us = time.time_ns() // 1000
        self.received_bytes = 0
        self.sent_bytes = 0
        self.status: int | None = None
        self.is_started = False
        self.route = "unknown"
        self.error_code: str | None = None
        self.principal = ANYONE
        self.turn_id = ""
        self.has_turn = False
        """Whether the access record names the turn, though no turn came of the request."""
        self.is_joining = False
        """Whether the client named the turn itself."""
        self.request_id = ""
        self.has_request_id = False
        """Whether the client named it in a header."""
        self.trace = NO_TRACE
        """The trace, seen from this request's own span."""
        self.parent_span_id: str | None = None
        self.call_span_id = ""
        """The span of its call, should it come to one."""
        self.has_record = False
        """Whether the turn's own commits hold the access record."""

    @property
    def request(self) -> ClientRequest:
        """The request, on the connection it came over."""
        assert self._request is not None  # Only HTTP requests are read and answered here.
        return self._request

    def header(self, name: bytes) -> str | None:
        """A request header as text; None if absent. Bytes that are not ASCII are escaped."""
        value = self.headers.get(name)
        return None if value is None else value.decode("ascii", "backslashreplace")

    def all(self, name: bytes) -> list[str]:
        """Every value of a request header, in the order received."""
        last = self.headers.get(name)
        if last is None:
            return []
        if len(self.headers) == len(self._fields):  # Every name stands once.
            return [last.decode("ascii", "backslashreplace")]
        return [
            value.decode("ascii", "backslashreplace") for key, value in self._fields if key == name
        ]

    @property
    def client_type(self) -> str:
        """What kind of client this is, from a closed list, by its user agent."""
        return client_type_of(self.headers.get(b"user-agent", b"")[:AGENT_BYTES_MAX])

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the request's head was read."""
        return (time.perf_counter() - self.started_at) * 1000.0

    def check_readable(self) -> None:
        """Raises the failure of a request that the connection could not read."""
        fault = self.request.fault
        if fault is not None:
            raise fault

    async def body(self, bytes_max: int) -> bytes:
        """The whole body. Raises InvalidValue where it is compressed, RequestTooLarge past
        `bytes_max`, ClientGone, and what `check_readable` raises."""
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise InvalidValue(
                "the body is compressed, and this gateway reads plain ones",
                param="content-encoding",
                hint="Send the body as it is, without `content-encoding`.",
            )
        declared = self.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > bytes_max:
            raise RequestTooLarge(f"the body is larger than the limit in bytes: {bytes_max}")
        request = self.request
        if request.is_expecting:
            request.invite()
        parts: list[bytes] = []
        while not request.is_gone:
            self.received_bytes += request.unread_bytes
            parts += request.take()
            if self.received_bytes > bytes_max:
                raise RequestTooLarge(f"the body is larger than the limit in bytes: {bytes_max}")
            if not request.has_more:
                self.check_readable()
                return parts[0] if len(parts) == 1 else b"".join(parts)
            await request.more()
        raise ClientGone

    # -------------------------------------------------------------- answers

    def start(
        self,
        status: int,
        content_type: bytes,
        extra: Iterable[Field] = (),
        *,
        length: int | None = None,
    ) -> None:
        """Begin the answer. Its head leaves with the first of the body, in one packet.

        length: of the body, where it is known.
        """
        self.status = status
        self.is_started = True
        ids = (
            f"\r\nx-request-id: {self.request_id}\r\ntraceparent: {self.trace.traceparent}\r\n"
            f"x-everyturn-turn-id: {self.turn_id}\r\n"
        )
        lines = b"content-type: " + content_type + ids.encode("ascii")
        self._head = self.request.head(status, lines, extra, length=length)

    async def write(self, data: bytes, *, is_last: bool) -> None:
        """Send a part of the body; waits while the client does not read."""
        request = self.request
        if request.is_blocked:
            await request.unblocked()
        self.send(data, is_last=is_last)

    def send(self, data: bytes, *, is_last: bool) -> None:
        """Send a part of the body, whether the client reads or not."""
        self.sent_bytes += len(data)
        head, self._head = self._head, b""
        self.request.send(head, data, is_last=is_last)

    async def answer(
        self,
        status: int,
        data: bytes,
        *,
        content_type: bytes = JSON_TYPE,
        extra: Iterable[Field] = (),
    ) -> None:
        """Send a whole answer; waits while the client does not read."""
        request = self.request
        if request.is_blocked:
            await request.unblocked()
        self.send_whole(status, data, content_type=content_type, extra=extra)

    def send_whole(
        self,
        status: int,
        data: bytes,
        *,
        content_type: bytes = JSON_TYPE,
        extra: Iterable[Field] = (),
    ) -> None:
        """Send a whole answer, whether the client reads or not."""
        self.start(status, content_type, extra, length=len(data))
        self.send(data, is_last=True)

    @property
    def is_client_gone(self) -> bool:
        """Whether the client was seen to leave while it was watched."""
        return self._request is not None and self._request.is_client_gone


def note_headers(notes: Iterable[str]) -> list[Field]:
    """The `x-everyturn-note` header for notes; none if there are none."""
    told: list[str] = []
    size = left = 0
    for note in notes:
        text = _NOTE_SAFE.sub("?", note)
        if size + len(text) > NOTE_HEADER_BYTES_MAX:
            left += 1
            continue
        size += len(text) + 2
        told.append(text)
    if left:
        told.append(f"and {left} more")
    return [(b"x-everyturn-note", "; ".join(told).encode("ascii"))] if told else []


def note_comments(notes: Iterable[str]) -> bytes:
    """Notes as comments of a stream that already runs."""
    lines = (f": everyturn-note {_NOTE_SAFE.sub('?', note)}\n\n" for note in notes)
    return "".join(lines).encode("ascii")


def failure_headers(failure: Failure) -> list[Field]:
    """The headers that belong to a failure: how long to wait."""
    if failure.retry_after_ms is None:
        return []
    seconds = max(1, -(-failure.retry_after_ms // 1000))
    return [(b"retry-after", str(seconds).encode("ascii"))]


def failure_body(failure: Failure) -> bytes:
    """The JSON envelope of a failure."""
    return write(failure.envelope())


def failure_frame(failure: Failure) -> bytes:
    """The last frame of a stream that failed."""
    return b"data: " + failure_body(failure) + b"\n\n"


def is_caller(failure: Failure) -> bool:
    """Whether the client itself can mend this."""
    return isinstance(failure, CallerFault)


async def refuse_link(exchange: Exchange, failure: Failure, send: Send) -> None:
    """Answer the opening request of a WebSocket with an error, as HTTP."""
    exchange.status = failure.status
    exchange.error_code = failure.code
    body = failure_body(failure)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start = {"type": "websocket.http.response.start", "status": failure.status, "headers": head}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body, "more_body": False})
