"""Law: the quick way reads what the strict way reads, to the digit and in the same order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.wire import reader
from everyturn.wire.reader import DEPTH_MAX, Malformed, read_client, read_provider, write

NUMBER_TEXTS = (
    "0.0",
    "0.7",
    "1.00",
    "2.0",
    "-0",
    "-0.0",
    "0.10",
    "1e5",
    "1E5",
    "1e-7",
    "1e16",
    "5e-324",
    "1e400",
    "9" * 41,
)


class NumberText(str):
    """A number as it stands in JSON."""


numbers = st.sampled_from(NUMBER_TEXTS).map(NumberText)
strings = st.text(max_size=8) | st.text(alphabet='"\\\x00\x7f\ud800\udc00é/[]{}0', max_size=6)
leaves = (
    numbers
    | strings
    | st.integers(-(10**45), 10**45)
    | st.floats()
    | st.booleans()
    | st.none()
    | st.just("0" * 50)
)
trees: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(st.tuples(st.text(max_size=2), inner), max_size=4).map(tuple)
    ),
    max_leaves=12,
)


def json_text(tree: Any, blank: str, *, is_ascii: bool) -> str:
    """JSON as some program might write it; a tuple is an object whose keys may stand twice."""
    match tree:
        case NumberText():
            return str(tree)
        case tuple():
            inner = (
                json.dumps(key, ensure_ascii=is_ascii)
                + f":{blank}"
                + json_text(value, blank, is_ascii=is_ascii)
                for key, value in tree
            )
            return "{" + f",{blank}".join(inner) + "}"
        case list():
            inner = (json_text(item, blank, is_ascii=is_ascii) for item in tree)
            return "[" + f",{blank}".join(inner) + "]"
        case _:
            return json.dumps(tree, ensure_ascii=is_ascii)


@given(trees, st.sampled_from(["", " ", "\n\t"]), st.booleans())
def test_the_quick_way_reads_what_the_strict_way_reads(
    tree: Any, blank: str, is_ascii: bool
) -> None:
    """A text that is read quickly gives the same tree strictly, of a client and of a provider."""
    raw = json_text(tree, blank, is_ascii=is_ascii).encode("utf-8", "surrogatepass")

    quick, is_written_so = reader._read_quickly(raw)

    if quick is not reader._UNSURE:
        for decoder in (reader._CLIENT, reader._PROVIDER):
            # repr tells 1 from 1.0 and from Num, and shows the order of keys.
            assert repr(reader._decode(raw, decoder)) == repr(quick)
        assert is_written_so == (write(quick) == raw)


@given(trees, st.sampled_from(["", " "]))
def test_reading_twice_says_the_same(tree: Any, blank: str) -> None:
    """What was read, by whatever way, is read again from what the writer makes of it."""
    raw = json_text(tree, blank, is_ascii=False).encode("utf-8", "surrogatepass")
    try:
        document = read_provider(raw)
    except Malformed:
        return
    if not document.has_nonfinite:
        assert repr(read_provider(write(document.value)).value) == repr(document.value)


@pytest.mark.parametrize("depth", [DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, DEPTH_MAX + 2])
@pytest.mark.parametrize(
    "opening, inner, closing",
    [
        (b"[", b"", b"]"),
        (b'{"a":', b"0", b"}"),
        (b"[[],", b"[]", b"]"),
        (b'["[[{",', b'"[{"', b"]"),
    ],
)
def test_depth_is_the_same_for_both_ways(
    depth: int, opening: bytes, inner: bytes, closing: bytes
) -> None:
    """A text that may be written quickly is refused at the same depth as any other."""
    is_flat = inner in (b"", b"0", b'"[{"')
    levels = depth if is_flat else depth - 1
    compact = opening * levels + inner + closing * levels
    for raw in (compact, compact.replace(b'"a"', b'"\\u0061"') + b" "):
        if depth > DEPTH_MAX:
            with pytest.raises(Malformed, match="nested deeper"):
                read_client(raw)
        else:
            assert write(read_client(raw)) == compact


@pytest.mark.parametrize("digits", [18, 19, 20, 38, 39, 40, 41])
def test_an_integer_becomes_a_text_at_the_same_length_for_both_ways(digits: int) -> None:
    """An integer as long as an int may be is one by either way; a longer one is a text."""
    for value in (10**digits, 10**digits - 1, 1 - 10**digits, -(10**digits)):
        raw = b'{"a":[%d]}' % value

        assert repr(read_client(raw)) == repr(reader._decode(raw, reader._CLIENT))
        assert (read_client(raw) == {"a": [value]}) == (len(str(value)) <= 40)
        assert write(read_client(raw)) == raw


def test_a_common_number_is_read_as_any_other() -> None:
    """What is kept for common texts is the float whose text each is."""
    for text, value in reader._COMMON_REALS.items():
        assert float(text) == value
        assert repr(value) == text
        assert "e" not in text
