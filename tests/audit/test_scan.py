"""The pattern engine."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from everyturn.audit.encoded import BASE64_HINT
from everyturn.audit.scan import Scanner

_SCANNER = Scanner(["secret", "[0-9]{3}"], apart=[BASE64_HINT, "a+b"])
_PATTERNS = [re.compile(pattern.encode()) for pattern in _SCANNER.patterns]
_PIECES = st.sampled_from(
    [b"secret", b"12", b"3", b"aab", b"cGFzc3dvcmQ9aHVudGVyMg", b" ", b"\xff"]
)


@given(st.lists(_PIECES).map(b"".join), st.sampled_from([0, 100, 9000]))
@example(b"", 0)
def test_a_scan_says_which_patterns_occur(text: bytes, before: int) -> None:
    """Whether they share a pass or have one of their own, and however long the text is."""
    raw = b"." * before + text

    expected = [index for index, pattern in enumerate(_PATTERNS) if pattern.search(raw)]
    assert _SCANNER.scan(raw) == expected
