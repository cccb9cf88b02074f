"""The transport seam: bytes to a provider and back, in order, none twice.

A transport knows nothing of what the bytes mean. It raises only typed failures (`errors.py`):
`UpstreamUnreachable` (no connection, or lost before the first byte of the answer),
`UpstreamTimeout`, `UpstreamStreamIncomplete` (the body stopped before its framing said so),
`UpstreamTooLarge` (headers over their bound) and `TranslationError` (not HTTP). One with somebody
in between also raises `WorkerUnavailable` (nobody was asked) and `WorkerLost` (nobody knows).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time limits of one call, in milliseconds."""

    connect_ms: int = 10_000
    """Name look-up, TCP and TLS together."""
    first_byte_ms: int = 120_000
    """From the request being sent to the first byte of the response head."""
    idle_ms: int = 60_000
    """Between two reads of the body."""
    total_ms: int = 600_000
    """The whole call."""


class Journey:
    """What a transport tells of a call's way, beside its answer; filled while the call runs."""

    __slots__ = ("link_ms", "queue_ms", "worker")

    def __init__(self) -> None:
        self.worker: str | None = None
        """Who runs the call; None where nobody stands between."""
        self.queue_ms: float | None = None
        """How long the call waited for somebody to run it."""
        self.link_ms: float | None = None
        """What the way there and back added until the answer began, or failed to."""


class UpstreamRequest:
    """One HTTP request to a provider, ready to be sent."""

    __slots__ = ("body", "further", "headers", "journey", "method", "url")

    def __init__(
        self,
        *,
        url: str,
        method: str = "POST",
        headers: tuple[tuple[str, str], ...] = (),
        further: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
        journey: Journey | None = None,
    ) -> None:
        self.url: Final = url
        """Absolute `http` or `https` URL with path and query, already percent-encoded."""
        self.method: Final = method
        self.headers: Final = headers
        """Without `host`, `content-length`, `connection` and `accept-encoding`: those are the
        transport's own."""
        self.further: Final = further
        """Headers of this call alone, sent after the others, which calls have in common."""
        self.body: Final = body
        self.journey: Final = journey
        """Filled by transports with somebody in between; None: nobody asks."""


class UpstreamResponse(Protocol):
    """An answer whose head has arrived. Use `close` on every path; it may be called twice."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names in lower case, values as sent, in order; repeated names stand as often as sent."""
        ...

    async def read(self) -> bytes:
        """What arrived since the last read, at least one byte; b"" once, at the legal end.

        Several network reads that happened meanwhile come as one. Raises the failures of the module
        docstring; afterwards every further read raises the same again.
        """
        ...

    def close(self) -> None:
        """Let go of the connection: back to the pool if the body ended, else closed at once."""
        ...


class Transport(Protocol):
    """A way to reach providers."""

    async def open(self, request: UpstreamRequest, timeouts: Timeouts) -> UpstreamResponse:
        """Send `request` once and wait for the head of the answer.

        Never sent twice; redirects are not followed.
        Cancelling the task that awaits this closes the connection.
        """
        ...

    async def close(self) -> None:
        """Close every pooled connection.

        Calls in flight end with `UpstreamUnreachable` or `UpstreamStreamIncomplete`.
        """
        ...
