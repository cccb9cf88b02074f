"""What a turn is recorded from: plain facts that whoever runs a turn hands to the recorder.

Ids and clocks come in here; nothing in `audit` makes them. Times are integer microseconds since
1970 in UTC, durations are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, Protocol

import msgspec

from everyturn.audit.records import StreamState, Transport
from everyturn.audit.usage import Tokens
from everyturn.errors import Failure
from everyturn.wire.preset import Target
from everyturn.wire.reply import Reply


class Cost(Protocol):
    """What a call cost, and who says so (`presets.price.Price`)."""

    @property
    def cost(self) -> Decimal | None:
        """US dollars; None: not known."""
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


class TurnOpening(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A turn that begins."""

    turn_id: str
    timestamp: int
    trace_id: str | None = None
    span_id: str | None = None
    """The turn's own span; each call's span is its child."""
    parent_span_id: str | None = None
    """The client's span; None when the trace begins here."""
    request_id: str | None = None
    principal: str | None = None
    service: str | None = None
    environment: str | None = None
    project_id: str | None = None
    chat_id: str | None = None
    plugin: str | None = None
    user_message_id: str | None = None
    origin: str | None = "gateway"


class CallOpening(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that is about to be made."""

    model_call_id: str
    timestamp: int
    span_id: str | None
    target: Target
    requested_model: str
    """What the client asked for."""
    sent: dict[str, Any]
    """The body as it is sent to the provider; not changed, and held until the call closes."""
    stream: bool
    """Whether the provider is asked for a stream."""
    reasoning_tags: tuple[tuple[int, int], ...] = ()
    """Messages of `sent` with reasoning in front of their content: index, and code points."""
    attempt: int = 1
    fallback_of: str | None = None
    transport: Transport = "direct"
    provider_type: str = "openai-chat"
    route_name: str | None = None
    """The target chosen; the model's own name by default."""


class CallClosing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a call ended."""

    stream_state: StreamState
    reply: Reply | None = None
    """What arrived, whole or not; None when nothing did."""
    failure: Failure | None = None
    """What the client was told; None when nothing went wrong or the client had left."""
    is_client_gone: bool = False
    """The client left before the end of its answer was sent."""
    is_shown: bool = False
    """Some of the answer reached the client before the end."""
    status_code: int | None = None
    """What the client was answered."""
    upstream_status: int | None = None
    provider_request_id: str | None = None
    latency_ms: float | None = None
    time_to_first_token_ms: float | None = None
    worker: str | None = None
    """The worker that ran the call; None where none did."""
    queue_ms: float | None = None
    link_ms: float | None = None
    upstream_ms: float | None = None
    notes: tuple[str, ...] = ()
    """What was done to the request or the answer; no values, no content."""
    pricing: Pricing | None = None
