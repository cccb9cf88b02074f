"""A request to a service: which ids it came with, what goes back, and its access record.

Shared by the ASGI and the WSGI middleware, which know nothing but their protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from everyturn import ids
from everyturn.sdk.carried import request_id
from everyturn.sdk.process import this_process
from everyturn.sdk.spans import (
    REQUEST_HEADER,
    TRACE_HEADER,
    TURN_HEADER,
    Line,
    Span,
    emit,
    new_id,
)

PROBES: Final = frozenset(
    {"/healthz", "/readyz", "/livez", "/health", "/ready", "/ping", "/metrics", "/favicon.ico"}
)
"""Paths that are counted and have no record; an application may give others."""

METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
"""Methods that stand in a record as they came; others stand as `OTHER`."""


class Incoming(Span):
    """A request. Where it names a turn, what is recorded inside joins that turn.

    Where it names none, an id is kept for the turn that its handler may open, so that the answer
    can name it.
    """

    __slots__ = ("is_adopted", "is_taken", "method", "request_bytes", "response_bytes")

    def __init__(
        self,
        *,
        method: str,
        traceparent: Sequence[str],
        tracestate: Sequence[str],
        turn_ids: Sequence[str],
        request_ids: Sequence[str],
    ) -> None:
        """Each header's values in the order received; one that stands twice counts as absent."""
        from everyturn.audit.trace import parse_trace

        parent = parse_trace(traceparent, tracestate) if traceparent else None
        self.is_adopted = len(turn_ids) == 1 and ids.is_turn_id(turn_ids[0])
        self.is_taken = False
        line = Line(
            turn_id=turn_ids[0] if self.is_adopted else ids.generate_turn_id(),
            request_id=request_id(request_ids[0]) if len(request_ids) == 1 else None,
            trace_id=parent.trace_id if parent else None,
            flags=parent.flags if parent else None,
            state=parent.tracestate if parent else None,
        )
        super().__init__(line, parent_span_id=parent.span_id if parent else None)
        self.method = method if method in METHODS else "OTHER"
        self.request_bytes = 0
        self.response_bytes = 0

    @property
    def is_recording(self) -> bool:
        """Whether tool runs and retrievals outside of a turn of this service join one."""
        return self.is_adopted

    def take_turn_id(self) -> str | None:
        """The request's turn id, for the first turn that is opened in it."""
        if self.is_taken:
            return None
        self.is_taken = True
        return self.line.turn_id

    def echo(self) -> list[tuple[str, str]]:
        """The response headers that name the turn, the request and the trace."""
        headers = self.headers()
        return [(name, headers[name]) for name in (TURN_HEADER, REQUEST_HEADER, TRACE_HEADER)]

    def record(
        self, *, path_template: str | None, status: int | None, error_code: str | None = None
    ) -> None:
        """Record the request. status: what was answered; None when no answer began."""
        settings = this_process().settings
        fields: dict[str, Any] = {
            "access_id": new_id("acc"),
            **self.ids(),
            "turn_id": self.line.turn_id if self.is_adopted or self.is_taken else None,
            "service": settings.service,
            "instance": settings.instance,
            "environment": settings.environment,
            "request_id": self.line.request_id,
            "method": self.method,
            "path_template": path_template,
            "status_code": status,
            "duration_ms": self.elapsed_ms(),
            "request_size_bytes": self.request_bytes,
            "response_size_bytes": self.response_bytes,
            "error_code": error_code,
        }
        try:
            emit("access_events", fields)
        except Exception:  # noqa: BLE001 - recording must not break the application
            this_process().counters.add("records_failed")
