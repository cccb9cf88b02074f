"""Where texts are found that stand in several places."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from everyturn.store.rows import REFERENCE_CHARS_MIN, string_in
from everyturn.store.sharing import answer_in

TEXTS = st.lists(st.sampled_from(['"', "\\", "\\\\", "\n", "\u2603", '"content":"', "word " * 30]))
LONG = TEXTS.map("".join).filter(lambda text: len(text) >= REFERENCE_CHARS_MIN)


@given(text=LONG, after=TEXTS.map("".join))
def test_an_answer_is_found_whole(text: str, after: str) -> None:
    """Quotes and backslashes in an answer do not end it, and what follows is not looked at."""
    literal = msgspec.json.encode(text).decode()
    response = f'{{"id":"x","content":{literal},"after":{json.dumps(after)},"content":"no"}}'

    assert answer_in(response) == (literal, response.index(literal))


@given(text=LONG, before=TEXTS.map("".join), after=TEXTS.map("".join))
def test_a_text_is_found_as_a_string(text: str, before: str, after: str) -> None:
    """A text is found wherever it stands as one of a message's strings, quotes included."""
    message = msgspec.json.encode({"name": before, "content": text, "more": after}).decode()
    last = msgspec.json.encode({"name": before, "content": text}).decode()

    for payload in (message, last):
        found = string_in(payload, text)
        assert found is not None
        at, length = found
        assert msgspec.json.decode(payload[at : at + length]) == text


def test_what_does_not_end_is_no_answer() -> None:
    """A text that breaks off, or is short, stays where it is."""
    assert answer_in('{"content":"' + "a" * 200) is None
    assert answer_in('{"content":"' + "a" * 200 + '\\"') is None
    assert answer_in('{"content":"short","more":"' + "a" * 200 + '"}') is None
    assert answer_in('{"text":"' + "a" * 200 + '"}') is None
