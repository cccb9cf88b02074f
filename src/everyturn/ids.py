"""Identifiers: turn ids, record ids, and W3C trace and span ids.

Pure but for `generate_turn_id`, the one place in the product where a turn id is made. Trace and
span ids are made from bits the caller draws, so that they can be tested.
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


def generate_turn_id() -> str:
    """A new turn id: a UUID version 4 in its canonical lower-case form."""
    # `str` of a UUID is slow.
    digits = _hex(uuid.uuid4().int, 16)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


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
