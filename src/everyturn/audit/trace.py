"""Read and write W3C trace context: `traceparent` and `tracestate`, levels 1 and 2.

Pure. What is malformed is None, never repaired: a wrong context would join turns that have nothing
to do with each other. Bits are drawn by the caller (`ids.trace_id`, `ids.span_id`).
Source: W3C Trace Context (level 1: Recommendation 2021-11-23; level 2: Candidate Recommendation).
Where the two differ (keys of `tracestate`, members that stand twice) the later level is followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SAMPLED: Final = 0x01
"""Flag: the caller records this trace."""

RANDOM: Final = 0x02
"""Flag of level 2: the right half of the trace id is random."""

_KNOWN_FLAGS: Final = SAMPLED | RANDOM
_FLAGS: Final = tuple(f"{flags:02x}" for flags in range(256))
_LENGTH: Final = 55
_MEMBERS_MAX: Final = 32
_KEY_LENGTH_MAX: Final = 256
_STATE_LENGTH_MAX: Final = 512
_HEX: Final = frozenset("0123456789abcdef")
_KEY_FIRST: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_KEY_SIGNS: Final = _KEY_FIRST | frozenset("_-*/@")


class TraceContext:
    """Where a request stands in a trace. Never changed."""

    __slots__ = ("flags", "span_id", "state", "trace_id")

    def __init__(
        self,
        *,
        trace_id: str,
        span_id: str,
        flags: int = SAMPLED,
        state: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.trace_id: Final = trace_id
        """32 lower-case hex digits, not all zero."""
        self.span_id: Final = span_id
        """16 lower-case hex digits, not all zero: the caller's span."""
        self.flags: Final = flags
        """`SAMPLED` and `RANDOM`; other bits are never kept."""
        self.state: Final = state
        """`tracestate` members in order, newest first; keys are unique."""

    @property
    def traceparent(self) -> str:
        """The header's value, in version 00."""
        return self.traceparent_of(self.span_id)

    def traceparent_of(self, span_id: str) -> str:
        """The header's value as a span below this one, or this one, sends it."""
        return f"00-{self.trace_id}-{span_id}-{_FLAGS[self.flags]}"

    @property
    def tracestate(self) -> str | None:
        """The header's value, at most 512 characters; None when there is nothing to say."""
        if not self.state:
            return None
        return ",".join(f"{key}={value}" for key, value in fit_state(self.state)) or None

    def child(self, span_id: str) -> TraceContext:
        """The same trace, seen from a span below this one."""
        return TraceContext(
            trace_id=self.trace_id, span_id=span_id, flags=self.flags, state=self.state
        )


def parse_trace(traceparent: Sequence[str], tracestate: Sequence[str] = ()) -> TraceContext | None:
    """The context that a request's headers carry; None when there is none that is valid.

    traceparent, tracestate: every value of that header in the order received. Two `traceparent`
    headers are malformed; a malformed `tracestate` is dropped and the parent stays.
    """
    if len(traceparent) != 1:
        return None
    parent = _parse_parent(traceparent[0].strip(" \t"))
    if parent is None or not tracestate:
        return parent
    return TraceContext(
        trace_id=parent.trace_id,
        span_id=parent.span_id,
        flags=parent.flags,
        state=parse_state(tracestate) or (),
    )


def _parse_parent(text: str) -> TraceContext | None:
    if len(text) < _LENGTH or text[2] + text[35] + text[52] != "---":
        return None
    version, trace, span, flags = text[:2], text[3:35], text[36:52], text[53:55]
    if not all(_is_hex(part) for part in (version, trace, span, flags)) or version == "ff":
        return None
    if version == "00" and len(text) != _LENGTH:
        return None
    if len(text) > _LENGTH and text[_LENGTH] != "-":
        return None  # A later version may add fields, after a dash.
    if not trace.strip("0") or not span.strip("0"):
        return None
    return TraceContext(trace_id=trace, span_id=span, flags=int(flags, 16) & _KNOWN_FLAGS)


def parse_state(values: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
    """The members of all `tracestate` headers together; None when any of them is malformed.

    More than 32 members make the whole list malformed. Of a key that stands twice the first is
    kept: members are added in front, so it is the newest.
    """
    members: dict[str, str] = {}
    count = 0
    for raw in ",".join(values).split(","):
        member = raw.strip(" \t")
        if not member:
            continue  # Empty members are allowed.
        count += 1
        key, equals, value = member.partition("=")
        if count > _MEMBERS_MAX or not equals or not _is_key(key) or not _is_value(value):
            return None
        members.setdefault(key, value)
    return tuple(members.items())


def fit_state(state: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The members that may be sent on: at most 512 characters.

    What is too long is left out whole, the members over 128 characters first, then from the end.
    Source: level 1, section 3.3.1.5.
    """
    kept = list(state)
    for member in [m for m in reversed(state) if len(m[0]) + len(m[1]) + 1 > 128]:
        if _state_length(kept) <= _STATE_LENGTH_MAX:
            break
        kept.remove(member)
    while _state_length(kept) > _STATE_LENGTH_MAX:
        kept.pop()
    return tuple(kept)


def _state_length(state: list[tuple[str, str]]) -> int:
    return sum(len(key) + len(value) + 2 for key, value in state) - 1


def _is_hex(text: str) -> bool:
    return _HEX.issuperset(text)


def _is_key(key: str) -> bool:
    """Small letters, digits and `_-*/@`; begins with a letter or a digit."""
    return 0 < len(key) <= _KEY_LENGTH_MAX and key[0] in _KEY_FIRST and _KEY_SIGNS.issuperset(key)


def _is_value(value: str) -> bool:
    """Printable ASCII without comma and equals sign; trailing spaces were stripped."""
    return 0 < len(value) <= 256 and all(" " <= sign <= "~" and sign not in ",=" for sign in value)
