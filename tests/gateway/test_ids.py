"""The forms of identifiers."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from everyturn import ids


def test_a_turn_id_is_a_canonical_uuid() -> None:
    """Each one is new, of version 4, and written as `uuid` writes it."""
    made = [ids.generate_turn_id() for _ in range(100)]

    assert len(set(made)) == 100
    assert all(ids.is_turn_id(text) and str(uuid.UUID(text)) == text for text in made)


@given(st.integers(0, 1 << 150))
def test_bits_are_written_in_hex(bits: int) -> None:
    """As many digits as an id has, of the lowest bits; ids of traces are never all zero."""
    low, lower = bits % (1 << 128), bits % (1 << 64)

    assert ids.record_id("call", bits) == f"call_{low:032x}"
    assert ids.trace_id(bits) == f"{low or 1:032x}"
    assert ids.span_id(bits) == f"{lower or 1:016x}"
    assert ids.span_id(0) == "0000000000000001"


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_an_id_that_grows_with_time_begins_with_it(timestamp_us: int, bits: int) -> None:
    """Its digits are those of the time and of the random bits, one after the other."""
    made = ids.time_id("call", timestamp_us, bits)

    assert made == ids.record_id("call", timestamp_us << 64 | bits)


_DRAWN = st.lists(
    st.sampled_from([b"\0" * 8]) | st.binary(min_size=8, max_size=8), min_size=6, max_size=6
).map(b"".join)


@given(_DRAWN)
def test_ids_of_one_draw_are_those_made_alone(drawn: bytes) -> None:
    """Each of its own bytes, none all zero where it must not be."""
    trace, span, call_span, request = ids.of_request(drawn)

    assert trace == ids.trace_id(int.from_bytes(drawn[:16]))
    assert span == ids.span_id(int.from_bytes(drawn[16:24]))
    assert call_span == ids.span_id(int.from_bytes(drawn[24:32]))
    assert request == ids.record_id("req", int.from_bytes(drawn[32:]))
