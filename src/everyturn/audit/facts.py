"""What a turn is recorded from: plain facts that whoever runs a turn hands to the recorder.

Ids and clocks come in here; nothing in `audit` makes them. Times are integer microseconds since
1970 in UTC, durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from everyturn.audit.records import StreamState, Transport
from everyturn.audit.usage import Tokens
from everyturn.errors import Failure
from everyturn.wire.preset import Target
from everyturn.wire.reply import Reply


class Cost(Protocol):
    """What a call cost, and who says so (`presets.price.Price`)."""

    @property
    def dollars(self) -> float | None:
        """What it cost; None: not known."""
        ...

    @property
    def source(self) -> str | None:
        """The price list; None: none was asked."""
        ...

    @property
    def version(self) -> str | None:
        """Its version."""
        ...


Pricing = Callable[[Tokens, str | None], Cost]
"""(counts as reported, model name as the provider served it) → what that cost."""


_MICROSECONDS_MAX: Final = 1099511627776.0
"""2**40."""
_NO_FRACTION: Final = 4503599627370496.0
"""2**52: with it a sum has no bit left behind the point."""


def rounded_ms(duration_ms: float) -> float:
    """A duration as a row has it: `round(duration_ms, 3)`, which by itself takes far longer."""
    microseconds = duration_ms * 1000.0
    if 0.0 < microseconds < _MICROSECONDS_MAX:
        whole = (microseconds + _NO_FRACTION) - _NO_FRACTION
        # The product is off by 2**-13 at most, so what is further from the middle is rounded right.
        if -0.499 < microseconds - whole < 0.499:
            return whole / 1000.0
    return round(duration_ms, 3)


class TurnOpening:
    """A turn that begins."""

    __slots__ = (
        "chat_id",
        "environment",
        "is_new",
        "origin",
        "parent_span_id",
        "plugin",
        "principal",
        "project_id",
        "request_id",
        "service",
        "span_id",
        "timestamp",
        "trace_id",
        "turn_id",
        "user_message_id",
    )

    def __init__(
        self,
        *,
        turn_id: str,
        timestamp: int,
        trace_id: str | None = None,
        span_id: str | None = None,
        parent_span_id: str | None = None,
        request_id: str | None = None,
        principal: str | None = None,
        service: str | None = None,
        environment: str | None = None,
        project_id: str | None = None,
        chat_id: str | None = None,
        plugin: str | None = None,
        user_message_id: str | None = None,
        origin: str | None = "gateway",
        is_new: bool = False,
    ) -> None:
        self.turn_id = turn_id
        self.timestamp = timestamp
        self.trace_id = trace_id
        self.span_id = span_id
        """The turn's own span; each call's span is its child."""
        self.parent_span_id = parent_span_id
        """The client's span; None when the trace begins here."""
        self.request_id = request_id
        self.principal = principal
        self.service = service
        self.environment = environment
        self.project_id = project_id
        self.chat_id = chat_id
        self.plugin = plugin
        self.user_message_id = user_message_id
        self.origin = origin
        self.is_new = is_new
        """Whether the turn id was made for it just now, so that nothing is stored under it."""


class CallOpening:
    """A call that is about to be made."""

    __slots__ = (
        "attempt",
        "fallback_of",
        "model_call_id",
        "provider_type",
        "reasoning_tags",
        "requested_model",
        "route_name",
        "sent",
        "span_id",
        "stream",
        "target",
        "timestamp",
        "transport",
    )

    def __init__(
        self,
        *,
        model_call_id: str,
        timestamp: int,
        span_id: str | None,
        target: Target,
        requested_model: str,
        sent: dict[str, Any],
        stream: bool,
        reasoning_tags: tuple[tuple[int, int], ...] = (),
        attempt: int = 1,
        fallback_of: str | None = None,
        transport: Transport = "direct",
        provider_type: str = "openai-chat",
        route_name: str | None = None,
    ) -> None:
        self.model_call_id = model_call_id
        self.timestamp = timestamp
        self.span_id = span_id
        self.target = target
        self.requested_model = requested_model
        """What the client asked for."""
        self.sent = sent
        """The body as it is sent to the provider; not changed, and held until the call closes."""
        self.stream = stream
        """Whether the provider is asked for a stream."""
        self.reasoning_tags = reasoning_tags
        """Messages of `sent` with reasoning in front of their content: index, and code points."""
        self.attempt = attempt
        self.fallback_of = fallback_of
        self.transport: Transport = transport
        self.provider_type = provider_type
        self.route_name = route_name
        """The target chosen; the model's own name by default."""


class CallClosing:
    """How a call ended."""

    __slots__ = (
        "failure",
        "is_client_gone",
        "is_shown",
        "latency_ms",
        "link_ms",
        "notes",
        "pricing",
        "provider_request_id",
        "queue_ms",
        "reply",
        "status_code",
        "stream_state",
        "time_to_first_token_ms",
        "upstream_ms",
        "upstream_status",
        "worker",
    )

    def __init__(
        self,
        *,
        stream_state: StreamState,
        reply: Reply | None = None,
        failure: Failure | None = None,
        is_client_gone: bool = False,
        is_shown: bool = False,
        status_code: int | None = None,
        upstream_status: int | None = None,
        provider_request_id: str | None = None,
        latency_ms: float | None = None,
        time_to_first_token_ms: float | None = None,
        worker: str | None = None,
        queue_ms: float | None = None,
        link_ms: float | None = None,
        upstream_ms: float | None = None,
        notes: tuple[str, ...] = (),
        pricing: Pricing | None = None,
    ) -> None:
        self.stream_state: StreamState = stream_state
        self.reply = reply
        """What arrived, whole or not; None when nothing did."""
        self.failure = failure
        """What the client was told; None when nothing went wrong or the client had left."""
        self.is_client_gone = is_client_gone
        """The client left before the end of its answer was sent."""
        self.is_shown = is_shown
        """Some of the answer reached the client before the end."""
        self.status_code = status_code
        """What the client was answered."""
        self.upstream_status = upstream_status
        self.provider_request_id = provider_request_id
        self.latency_ms = latency_ms
        self.time_to_first_token_ms = time_to_first_token_ms
        self.worker = worker
        """The worker that ran the call; None where none did."""
        self.queue_ms = queue_ms
        self.link_ms = link_ms
        self.upstream_ms = upstream_ms
        self.notes = notes
        """What was done to the request or the answer; no values, no content."""
        self.pricing = pricing
