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
