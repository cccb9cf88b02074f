"""A request as it comes over a client's connection, and the way back: body in, answer out.

Between the connection, which fills it as bytes arrive, and the application (`http.Exchange`), which
empties it and answers. What has arrived is handed over without waiting, and an answer is bytes of
one write where that can be; nothing here costs a task, a timer or a future unless there is
something to wait for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from everyturn.errors import Failure, InvalidValue

if TYPE_CHECKING:
    from everyturn.gateway.connection import ClientConnection

Field = tuple[bytes, bytes]
"""A header: its name in lower case, and its value."""

REQUEST: Final = "everyturn.request"
"""In the scope that an application gets: the request itself, to read and to answer."""

DISCONNECT_WATCH_S: Final = 0.1
"""A client's leaving ends its turn only from here on: most answers are over by then."""
ONE_WRITE_BYTES_MAX: Final = 64 * 1024
"""Up to here a body is copied behind its head; beyond, both are handed over as they are."""

_LINE_END: Final = b"\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode("ascii")
    for status in range(100, 600)
}
_NO_NAME: Final = re.compile(rb"[\x00-\x20\x7f()<>@,;:\\\[\]={}\"]")
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What would end a header early, or cannot stand in one."""


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


class ClientRequest:
    """One request, and its answer. Its task reads, then answers; its connection does the rest."""

    __slots__ = (
        "_connection",
        "_is_chunked",
        "_parts",
        "_waiter",
        "_watch_from",
        "_watched",
        "fault",
        "has_more",
        "headers",
        "is_answered",
        "is_client_gone",
        "is_expecting",
        "is_gone",
        "is_old",
        "is_started",
        "keep_alive",
        "method",
        "named",
        "path",
        "query",
        "task",
        "unread_bytes",
    )

    def __init__(
        self, connection: ClientConnection, headers: list[Field], named: dict[bytes, bytes]
    ) -> None:
        self._connection = connection
        self.headers = headers
        """In the order received."""
        self.named = named
        """By their names; of one that stands more than once, the last."""
        self.method = "UNKNOWN"
        self.path = ""
        self.query = b""
        self.is_old = False
        """The client speaks HTTP/1.0, which has no chunks: the connection ends such a body."""
        self.keep_alive = False
        self.is_expecting = b"expect" in self.named and any(
            name == b"expect" and value.lower() == b"100-continue" for name, value in headers
        )
        """The client waits for word before it sends the body (RFC 9110, 10.1.1)."""
        self.fault: Failure | None = None
        """Why the request could not be read."""
        self._parts: list[bytes] = []
        self.unread_bytes = 0
        """Bytes of the body that arrived and were not taken yet."""
        self.has_more = True
        """The body has not arrived to its end."""
        self.is_gone = False
        """The connection was lost before the answer was complete."""
        self.is_started = False
        self.is_answered = False
        self._is_chunked = False
        self._waiter: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        """Serves this request, once its turn has come."""
        self._watched: asyncio.Task[None] | None = None
        self._watch_from = 0.0
        self.is_client_gone = False
        """The client was seen to leave while it was watched."""

    # ---------------------------------------------------------------------- for the connection

    def feed(self, data: bytes) -> None:
        """A part of the body has arrived."""
        self._parts.append(data)
        self.unread_bytes += len(data)
        self.wake()

    def wake(self) -> None:
        """Let the reader look again: at a part, the end or a fault."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def break_off(self, failure: Failure) -> None:
        """The body ends here, and cannot be read for `failure`."""
        if self.fault is None:
            self.fault = failure
        self.has_more = self.keep_alive = False
        self.wake()

    def lose(self) -> None:
        """The client is gone."""
        if self.is_answered:
            return
        self.is_gone = True
        self.wake()
        if self._watched is not None:
            self._tell_soon()

    # ------------------------------------------------------------------------------------- body

    def invite(self) -> None:
        """Have a client that waits to be told send the body."""
        transport = self._connection.transport
        if not transport.is_closing():
            self.is_expecting = False
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def take(self) -> list[bytes]:
        """What has arrived of the body since it was last taken."""
        parts = self._parts
        self._parts = []
        self.unread_bytes = 0
        return parts

    async def more(self) -> None:
        """Wait for the next part, the end or a fault, within `body_s`."""
        connection = self._connection
        connection.flow.resume_reading()
        waiter = self._waiter = connection.loop.create_future()
        try:
            async with asyncio.timeout(connection.patience.body_s):
                await waiter
        except TimeoutError:
            self.break_off(
                InvalidValue(
                    "the body did not arrive in time",
                    status=408,
                    hint="Send the whole body, of the length that `content-length` says.",
                )
            )
        finally:
            self._waiter = None

    # ----------------------------------------------------------------------------------- answer

    @property
    def is_blocked(self) -> bool:
        """Whether the client leaves so much unread that `unblocked` is to be awaited."""
        return self._connection.flow.write_paused and not self.is_gone

    async def unblocked(self) -> None:
        """Wait until the client reads on; one that does not for `unread_s` is gone."""
        connection = self._connection
        try:
            async with asyncio.timeout(connection.patience.unread_s):
                await connection.flow.drain()
        except TimeoutError:
            self.lose()
            connection.transport.abort()

    def head(
        self, status: int, lines: bytes, further: Iterable[Field], *, length: int | None
    ) -> bytes:
        """Begin the answer; its head, which is to be sent with the first of the body.

        lines: headers that are known to be valid, each with its line end. length: of the body;
        None where it comes in parts. Raises ValueError for a header that HTTP cannot carry.
        """
        self.is_started = True
        self.is_expecting = False
        head = [_STATUS_LINES[status], self._connection.date_line(), lines]
        if length is not None:
            head.append(b"content-length: %d\r\n" % length)
        for name, value in further:
            # Letters and digits can stand anywhere, and are most of what there is.
            if (not name.replace(b"-", b"").isalnum() and _NO_NAME.search(name)) or (
                not value.isalnum() and _NO_VALUE.search(value)
            ):
                raise ValueError("a header's name or value holds what HTTP cannot carry")
            head.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        self._is_chunked = length is None and not self.is_old and self.method != "HEAD"
        head.append(b"transfer-encoding: chunked\r\n\r\n" if self._is_chunked else b"\r\n")
        return b"".join(head)

    def send(self, head: bytes, body: bytes, *, is_last: bool) -> None:
        """Send a part of the answer: its head, if it has not left yet, and some of its body."""
        if self.is_gone:
            return
        transport = self._connection.transport
        parts: list[bytes] = [head] if head else []
        if self.method == "HEAD":
            body = b""  # Its answer ends with the head.
        elif self._is_chunked:
            if body:
                parts += (hex(len(body))[2:].encode("ascii"), _LINE_END, body, _LINE_END)
            if is_last:
                parts.append(_LAST_CHUNK)
        else:
            parts.append(body)
        if len(body) <= ONE_WRITE_BYTES_MAX:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)
        if is_last:
            self.is_answered = True
            self.wake()
            if not self.keep_alive:
                transport.close()
            self._connection.on_answered()

    # ----------------------------------------------------------------------------------- watching

    def watch(self, task: asyncio.Task[None]) -> None:
        """Cancel `task` when the client goes away; the body must have been read."""
        connection = self._connection
        self._watched = task
        self._watch_from = connection.loop.time() + DISCONNECT_WATCH_S
        if self.is_gone:
            self._tell_soon()
        elif connection.flow.read_paused:
            # An end is only seen while the socket is read.
            connection.loop.call_later(DISCONNECT_WATCH_S, connection.read_on)

    def stop_watching(self) -> None:
        """The task is not cancelled any more."""
        self._watched = None

    def _tell_soon(self) -> None:
        loop = self._connection.loop
        loop.call_at(max(self._watch_from, loop.time()), self._tell)

    def _tell(self) -> None:
        task = self._watched
        if task is not None:
            self._watched = None
            self.is_client_gone = True
            task.cancel()
