"""Facts as rows have them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from everyturn.audit.facts import rounded_ms


def _halves(number: int) -> float:
    return number / 2000


@given(duration=st.floats(allow_nan=False) | st.floats(0, 1e5) | st.integers(0, 10**9).map(_halves))
@example(0.0)
@example(-0.0)
@example(2.675)
@example(float(1 << 40) / 1000)
def test_a_duration_is_rounded_as_python_rounds(duration: float) -> None:
    """Every duration, those in the middle between two values too, is what `round` makes of it."""
    assert repr(rounded_ms(duration)) == repr(round(duration, 3))
