"""MCP: the ids travel in `params._meta` of a request and come back in `_meta` of its result.

Works on the plain objects that any MCP library gives, so it needs none. `_meta` carries
`traceparent` and `tracestate` as the protocol reserves them, and the envelope under `everyturn`.
Source: Model Context Protocol, specification 2025-11-25, "_meta"; SEP-414 for the trace's names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from everyturn.sdk.calls import is_coroutine_function
from everyturn.sdk.spans import CURRENT, STATE_HEADER, TRACE_HEADER, Span
from everyturn.sdk.turns import Joined, join


def with_meta(params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of an MCP request with the ids of this context in `_meta`.

    For clients. The given object is not changed; outside of a turn a copy comes back.
    """
    given = dict(params or {})
    span = CURRENT.get()
    return given if span is None or not span.is_recording else _marked(given, span)


def joined(params: Mapping[str, Any] | None) -> Joined:
    """Join the turn that a request's parameters name: `with mcp.joined(params) as turn:`.

    For servers. Without ids the work runs and nothing is recorded, which is counted.
    """
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    meta = meta if isinstance(meta, Mapping) else {}
    return join(
        {"everyturn": meta.get("everyturn")},
        traceparent=meta.get(TRACE_HEADER),
        tracestate=meta.get(STATE_HEADER),
    )


def echo(result: Mapping[str, Any], span: Span) -> dict[str, Any]:
    """The result with both ids in `_meta`. The given object is not changed."""
    return _marked(dict(result), span) if span.is_recording else dict(result)


def handler(function: Callable[..., Any]) -> Callable[..., Any]:
    """A handler `function(params, …)` that joins the turn of its request and echoes the ids.

    For functions and coroutine functions that return the result as a mapping.
    """
    if is_coroutine_function(function):

        @functools.wraps(function)
        async def handle_async(params: Mapping[str, Any] | None, *args: Any, **kwargs: Any) -> Any:
            with joined(params) as span:
                return echo(await function(params, *args, **kwargs), span)

        return handle_async

    @functools.wraps(function)
    def handle(params: Mapping[str, Any] | None, *args: Any, **kwargs: Any) -> Any:
        with joined(params) as span:
            return echo(function(params, *args, **kwargs), span)

    return handle


def _marked(given: dict[str, Any], span: Span) -> dict[str, Any]:
    meta = given.get("_meta")
    marked: dict[str, Any] = dict(meta) if isinstance(meta, Mapping) else {}
    headers = span.headers()
    for name in (TRACE_HEADER, STATE_HEADER):
        if name in headers:
            marked[name] = headers[name]
    given["_meta"] = {**marked, **span.envelope()}
    return given
