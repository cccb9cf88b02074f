"""One HTTP exchange with a client: what came, what goes, and the facts an access record needs.

The server (uvicorn) owns HTTP; this owns the meaning of headers, the size of the body, and the
moment a client goes away.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any, Final

from everyturn.audit.trace import TraceContext
from everyturn.errors import CallerFault, Failure, InvalidValue, RequestTooLarge
from everyturn.gateway.auth import ANYONE
from everyturn.wire.reader import write

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON_TYPE: Final = b"application/json"
SSE_TYPE: Final = b"text/event-stream; charset=utf-8"

FAULT: Final = "everyturn.fault"
"""In the scope of a request that the connection could not read: its failure."""

DISCONNECT_WATCH_S: Final = 0.1
"""A client is watched for leaving only when its answer takes longer: most do not."""

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
        "_receive",
        "_send",
        "_watch",
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
        "scope",
        "sent_bytes",
        "started_at",
        "started_us",
        "status",
        "task",
        "trace",
        "turn_id",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        task = asyncio.current_task()
        assert task is not None  # The server runs each request in a task.
        self.task: asyncio.Task[object] = task
        self._watch: DisconnectWatch | None = None
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
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
        self.has_record = False
        """Whether the turn's own commits hold the access record."""

    def header(self, name: bytes) -> str | None:
        """A request header as text; None if absent. Bytes that are not ASCII are escaped."""
        value = self.headers.get(name)
        return None if value is None else value.decode("ascii", "backslashreplace")

    def all(self, name: bytes) -> list[str]:
        """Every value of a request header, in the order received."""
        if name not in self.headers:
            return []
        return [
            value.decode("ascii", "backslashreplace")
            for key, value in self.scope["headers"]
            if key == name
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
        fault: Failure | None = self.scope.get(FAULT)
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
        message = await self._receive()
        chunk: bytes = message.get("body", b"")
        self.received_bytes = len(chunk)
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.check_readable()
            if len(chunk) > bytes_max:
                raise RequestTooLarge(f"the body is larger than the limit in bytes: {bytes_max}")
            return chunk
        parts = [chunk]
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            if self.received_bytes > bytes_max:
                raise RequestTooLarge(f"the body is larger than the limit in bytes: {bytes_max}")
            if not message.get("more_body", False):
                self.check_readable()
                return b"".join(parts)
            message = await self._receive()
            chunk = message.get("body", b"")
            self.received_bytes += len(chunk)
            parts.append(chunk)

    # -------------------------------------------------------------- answers

    def _head(self, content_type: bytes, extra: Iterable[tuple[bytes, bytes]]) -> list[Any]:
        head = [
            (b"content-type", content_type),
            (b"x-request-id", self.request_id.encode("ascii")),
            (b"traceparent", self.trace.traceparent.encode("ascii")),
            (b"x-everyturn-turn-id", self.turn_id.encode("ascii")),
        ]
        head.extend(extra)
        return head

    async def start(
        self, status: int, content_type: bytes, extra: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Send the head of the answer."""
        self.status = status
        self.is_started = True
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": self._head(content_type, extra),
            }
        )

    async def write(self, data: bytes, *, is_last: bool) -> None:
        """Send a part of the body; waits while the client does not read."""
        self.sent_bytes += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def answer(
        self,
        status: int,
        data: bytes,
        *,
        content_type: bytes = JSON_TYPE,
        extra: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send a whole answer."""
        length = (b"content-length", str(len(data)).encode("ascii"))
        await self.start(status, content_type, (length, *extra))
        await self.write(data, is_last=True)

    # ------------------------------------------------------------ watching

    def watch_client(self) -> DisconnectWatch:
        """Cancel the current task when the client goes away; the body must have been read."""
        self._watch = DisconnectWatch(self._receive, self.task)
        return self._watch

    @property
    def is_client_gone(self) -> bool:
        """Whether the client was seen to leave."""
        return self._watch is not None and self._watch.is_gone


class DisconnectWatch:
    """Cancels a task when its client leaves; starts looking only after DISCONNECT_WATCH_S."""

    __slots__ = ("_receive", "_task", "_timer", "_watched", "is_gone")

    def __init__(self, receive: Receive, watched: asyncio.Task[object]) -> None:
        self._receive = receive
        self._watched = watched
        self._task: asyncio.Task[None] | None = None
        self.is_gone = False
        self._timer = asyncio.get_running_loop().call_later(DISCONNECT_WATCH_S, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        self.is_gone = True
        self._watched.cancel()

    def stop(self) -> None:
        """Stop looking; the task is not cancelled any more."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


def note_headers(notes: Iterable[str]) -> list[tuple[bytes, bytes]]:
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


def failure_headers(failure: Failure) -> list[tuple[bytes, bytes]]:
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
