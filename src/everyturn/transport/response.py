"""An answer of a provider as the caller of a transport holds it.

The buffer between a connection that fills it and the reader that empties it. It outlives the
connection's part: once the last byte has arrived the connection goes on to other calls, and what
is still unread stays here.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from everyturn.errors import Failure, UpstreamStreamIncomplete
from everyturn.transport.base import Timeouts

NAMES_MAX: Final = 1024
LOWER_NAMES: Final[dict[bytes, str]] = {}
"""Names of headers in lower case, for every answer repeats the same few; at most NAMES_MAX."""


def lower_name(name: bytes) -> str:
    """A header's name as text in lower case, from now on in LOWER_NAMES."""
    if len(LOWER_NAMES) >= NAMES_MAX:
        LOWER_NAMES.clear()
    lower = LOWER_NAMES[name] = name.decode("ascii").lower()
    return lower


class Line(Protocol):
    """What an answer asks of the connection it arrives over."""

    deadline: float
    is_paused: bool

    def wait(self, response: DirectResponse, limit: str, limit_ms: int) -> asyncio.Future[None]:
        """A future for the next thing that happens, within `limit` and the total."""
        ...

    def resume(self) -> None:
        """Go on after a pause."""
        ...

    def fail(self, failure: Failure, *, keep_parts: bool = True) -> None:
        """End the call and close the socket."""
        ...


class DirectResponse:
    """An answer as the seam promises it (`UpstreamResponse`)."""

    __slots__ = (
        "connection",
        "failure",
        "has_ended",
        "headers",
        "limit",
        "parts",
        "size",
        "status",
        "timeouts",
        "total_at",
        "waiter",
    )

    def __init__(self, connection: Line, timeouts: Timeouts, total_at: float) -> None:
        self.status = 0
        """0 until the head has arrived, which is before anybody outside sees this object."""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.connection: Line | None = connection
        """None once the connection has gone its own way."""
        self.parts: list[bytes] = []
        self.size = 0
        """Bytes in `parts`."""
        self.has_ended = False
        self.failure: Failure | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.timeouts = timeouts
        self.total_at = total_at
        """When `total_ms` is over, on the loop's clock."""
        self.limit = "total_ms"
        """The key of `Timeouts` that the connection's present deadline comes from."""

    async def read(self) -> bytes:
        """What arrived since the last read, as one; b"" at the legal end and ever after.

        What arrived before a failure is handed out before the failure is raised. One reader at a
        time.
        """
        while not self.parts:
            if self.failure is not None:
                raise self.failure
            if self.has_ended:
                return b""
            connection = self.connection
            assert connection is not None, "neither failed nor ended, so it is still connected"
            assert self.waiter is None, "an answer has one reader"
            self.waiter = connection.wait(self, "idle_ms", self.timeouts.idle_ms)
            try:
                await self.waiter
            finally:
                self.waiter = None
                if self.connection is not None:
                    self.limit = "total_ms"
                    connection.deadline = self.total_at
        parts = self.parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self.size = 0
        if self.connection is not None and self.connection.is_paused:
            self.connection.resume()
        return data

    def close(self) -> None:
        """Let go: before the end the socket is closed at once and unread bytes are dropped."""
        connection = self.connection
        if connection is None:
            return
        connection.fail(
            UpstreamStreamIncomplete("The answer was given up before its end."),
            keep_parts=False,
        )

    def wake(self) -> None:
        """Let the reader look again."""
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
