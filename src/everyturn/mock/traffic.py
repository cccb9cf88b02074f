"""What the scripted provider saw: requests, connections, clients that went away.

Values for tests and for the `/__last` and `/__stats` endpoints. Requests are kept as they came:
header names and values in order, the body byte for byte. Only the newest are kept; the counts
say how many there were.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Final

KEPT_REQUESTS_MAX: Final = 256
"""Requests kept for `/__last`; an older one is dropped when a newer one comes."""
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Body bytes kept for `/__last`; the oldest requests are dropped until the rest fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request as it arrived."""

    method: str
    target: str
    """Path and query as sent."""
    headers: tuple[tuple[str, str], ...]
    """In the order and spelling they were sent."""
    body: bytes
    model: str | None = None
    """`model` of the body; None when there was none that is a string."""
    scenario: str | None = None
    """The scenario that answered; None when no scenario did."""
    streamed: bool = False
    """Whether the body asked for a stream."""

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its spelling; None when it was not sent."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def json(self) -> Any:
        """The body read as JSON. Raises ValueError where it is none."""
        return json.loads(self.body)

    def as_shown(self) -> dict[str, Any]:
        """The request for `/__last`. Bytes that are no UTF-8 show as lone surrogates (PEP 383)."""
        return {
            "method": self.method,
            "target": self.target,
            "headers": [list(pair) for pair in self.headers],
            "body": self.body.decode("utf-8", "surrogateescape"),
            "model": self.model,
            "scenario": self.scenario,
            "stream": self.streamed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAbort:
    """A client that went away before its answer had ended."""

    model: str | None
    scenario: str | None
    bytes_sent: int
    """Bytes of the answer handed to the socket before it was noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts since the start. Requests to the provider's own `/__` endpoints are not counted."""

    requests: int
    requests_kept: int
    answers_open: int
    """Answers that have begun or are awaited and have not ended."""
    connections: int
    """Connections accepted, those to `/__` endpoints included."""
    connections_open: int
    client_aborts: tuple[ClientAbort, ...]
    """The newest ones, oldest first."""
    client_abort_counts: dict[str, int]
    """All of them, by model name as it was asked for; `""` where none was."""

    def aborts_of(self, model: str) -> int:
        """How many clients of this model went away, by its name as it was asked for."""
        return self.client_abort_counts.get(model, 0)

    def as_shown(self) -> dict[str, Any]:
        """The counts for `/__stats`."""
        return {
            "requests": self.requests,
            "requests_kept": self.requests_kept,
            "answers_open": self.answers_open,
            "connections": self.connections,
            "connections_open": self.connections_open,
            "client_aborts": sum(self.client_abort_counts.values()),
            "client_aborts_by_model": dict(self.client_abort_counts),
        }


class Traffic:
    """The counts and the kept requests of one provider, for one thread to write."""

    def __init__(self) -> None:
        self.requests = 0
        self.answers_open = 0
        self.connections = 0
        self.connections_open = 0
        self._kept: deque[SeenRequest] = deque()
        self._kept_bytes = 0
        self._aborts: deque[ClientAbort] = deque(maxlen=KEPT_REQUESTS_MAX)
        self._abort_counts: Counter[str] = Counter()

    def keep(self, request: SeenRequest) -> None:
        """Remember a request; drop the oldest ones beyond the bounds (the newest always stays)."""
        self._kept.append(request)
        self._kept_bytes += len(request.body)
        while len(self._kept) > 1 and (
            len(self._kept) > KEPT_REQUESTS_MAX or self._kept_bytes > KEPT_BYTES_MAX
        ):
            self._kept_bytes -= len(self._kept.popleft().body)

    def client_went(self, abort: ClientAbort) -> None:
        """Count a client that went away."""
        self._aborts.append(abort)
        self._abort_counts[abort.model or ""] += 1

    def kept(self) -> list[SeenRequest]:
        """The kept requests, oldest first."""
        return list(self._kept)

    def stats(self) -> Stats:
        """The counts now."""
        return Stats(
            requests=self.requests,
            requests_kept=len(self._kept),
            answers_open=self.answers_open,
            connections=self.connections,
            connections_open=self.connections_open,
            client_aborts=tuple(self._aborts),
            client_abort_counts=dict(self._abort_counts),
        )
