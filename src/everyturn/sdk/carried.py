"""Ids that arrive from elsewhere: in headers, in an envelope, in the `_meta` of MCP.

Never repaired. What is not valid is as if it were not there; a wrong id would join things that
have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everyturn import ids

if TYPE_CHECKING:
    from everyturn.audit.trace import TraceContext


def ids_in(envelope: Any) -> tuple[str, str | None, str | None] | None:
    """(turn id, trace id, request id) of an envelope's inner object; None if it names no turn."""
    if not isinstance(envelope, Mapping):
        return None
    turn_id = envelope.get("turn_id")
    if not isinstance(turn_id, str) or not ids.is_turn_id(turn_id):
        return None
    trace = envelope.get("trace_id")
    is_trace = isinstance(trace, str) and ids.is_trace_id(trace)
    return turn_id, trace if is_trace else None, request_id(envelope.get("request_id"))


def request_id(value: Any) -> str | None:
    """The request id, if it is one."""
    return value if isinstance(value, str) and ids.is_request_id(value) else None


def trace_of(traceparent: Any, tracestate: Any = None) -> TraceContext | None:
    """The context of one `traceparent` and one `tracestate`; None where there is no valid one."""
    if not isinstance(traceparent, str):
        return None
    # Imported here: a process that only opens turns of its own never needs it.
    from everyturn.audit.trace import parse_trace

    return parse_trace([traceparent], [tracestate] if isinstance(tracestate, str) else [])
