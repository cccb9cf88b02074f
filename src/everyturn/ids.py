"""Identifiers: turn ids, record ids, and W3C trace and span ids.

Pure but for `generate_turn_id`, the one place in the product where a turn id is made. The other ids
are made from bits that the caller draws, so that they can be tested.
Source: W3C Trace Context, section 3.2 (`traceparent`).
"""

from __future__ import annotations

import re
import uuid
from typing import Final

_TRACE_ID: Final = re.compile(r"(?!0{32})[0-9a-f]{32}")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_UUID4: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_BITS_64: Final = (1 << 64) - 1
_BITS_128: Final = (1 << 128) - 1
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16

REQUEST_BYTES: Final = 48
"""Random bytes that the ids of one request are made of, beside that of its turn."""


def generate_turn_id() -> str:
    """A new turn id: a UUID version 4 in its canonical lower-case form."""
    # `str` of a UUID is slow.
    digits = _hex(uuid.uuid4().int, 16)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def of_request(drawn: bytes) -> tuple[str, str, str, str]:
    """The ids of a request: of its trace, its span and its call's, and its own.

    drawn: REQUEST_BYTES random bytes; one draw, for each costs a call of the system. The ids are
    those that `trace_id`, `span_id` and `record_id` make.
    """
    digits = drawn.hex()
    trace, span, call_span = digits[:32], digits[32:48], digits[48:64]
    return (
        trace if trace != _NO_TRACE else trace_id(0),
        span if span != _NO_SPAN else span_id(0),
        call_span if call_span != _NO_SPAN else span_id(0),
        "req_" + digits[64:],
    )


def is_turn_id(text: str) -> bool:
    """Whether `text` is a canonical UUID version 4."""
    return _UUID4.fullmatch(text) is not None


def is_trace_id(text: str) -> bool:
    """Whether `text` is a W3C trace id: 32 lower-case hex digits, not all zero."""
    return _TRACE_ID.fullmatch(text) is not None


def is_request_id(text: str) -> bool:
    """Whether `text` is taken as a request id: 1 to 128 letters, digits and `._:/+=@-`."""
    return _REQUEST_ID.fullmatch(text) is not None


def record_id(prefix: str, bits: int) -> str:
    """An id for a record that is not a turn: `prefix` and 128 bits in hex.

    prefix: `call`, `acc`, `req` …; bits: 128 random bits.
    """
    return prefix + "_" + _hex(bits & _BITS_128, 16)


def time_id(prefix: str, timestamp_us: int, bits: int) -> str:
    """A record id that grows with time: stores write it beside the one before it.

    timestamp_us: microseconds since 1970; bits: 64 random bits.
    """
    raw = timestamp_us.to_bytes(8, "big") + bits.to_bytes(8, "big")
    return f"{prefix}_{raw.hex()}"


def trace_id(bits: int) -> str:
    """A W3C trace id from 128 bits; all-zero is not allowed, so the last bit is set then."""
    return _hex(bits & _BITS_128 or 1, 16)


def span_id(bits: int) -> str:
    """A W3C span id from 64 bits; all-zero is not allowed, so the last bit is set then."""
    return _hex(bits & _BITS_64 or 1, 8)


def _hex(value: int, length: int) -> str:
    """A number in `2 * length` hex digits; formatting it takes twice as long."""
    return value.to_bytes(length, "big").hex()
