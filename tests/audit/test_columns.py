from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit import columns, schema

TURN = {column.name: column for column in schema.LOG_NAMED["turn_audit"].columns}
CALL = {column.name: column for column in schema.LOG_NAMED["model_calls"].columns}

any_text = st.text(st.characters(exclude_categories=()))
odd_text = st.text(st.sampled_from("a0\\u␛2410\0\ud83c\udf55"))


@given(any_text | odd_text)
def test_escaping_is_undone_by_reading(text: str) -> None:
    """Any string comes back, and what rests has neither NUL nor surrogate."""
    resting = columns.escape(text)

    assert columns.unescape(resting) == text
    assert "\0" not in resting
    resting.encode("utf-8")


@given(odd_text, odd_text)
def test_no_two_texts_rest_alike(one: str, other: str) -> None:
    """An escape cannot be confused with the characters it is made of."""
    assert (columns.escape(one) == columns.escape(other)) == (one == other)


def test_most_text_rests_as_it_is() -> None:
    """Only NUL, surrogates and the escape itself are touched; the escape is readable."""
    assert columns.escape("Grüße\n\\u0000 😀") == "Grüße\n\\u0000 😀"
    assert columns.escape("a\0b\ud83c␛") == "a␛0000b␛D83C␛241B"


@given(any_text | odd_text)
def test_plain_text_needs_no_escape(text: str) -> None:
    """What is called plain rests as it is, but for surrogates, which encoding refuses."""
    if columns.is_plain(text) and text.isascii():
        assert columns.escape(text) == text
    if columns.escape(text) == text:
        assert columns.is_plain(text)


@given(st.recursive(any_text, lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_json_keeps_its_meaning(tree: object) -> None:
    """JSON with raw NUL or surrogates in its strings reads as the same tree afterwards."""
    raw = json.dumps(tree, ensure_ascii=False).replace("\\u0000", "\0")

    resting = columns.at_rest(CALL["usage_json"], raw)

    assert "\0" not in resting
    resting.encode("utf-8")
    assert json.loads(resting) == json.loads(json.dumps(tree))


def test_a_long_text_is_cut_and_says_so() -> None:
    """The first 1 MiB, no character split, then bytes and hash of the whole."""
    text = "x" + "€" * columns.TEXT_BYTES_MAX
    data = text.encode()

    resting = columns.at_rest(TURN["user_text"], text)

    kept, _, mark = resting.partition("[cut:")
    assert text.startswith(kept)
    assert columns.TEXT_BYTES_MAX - 3 < len(kept.encode()) <= columns.TEXT_BYTES_MAX
    assert mark == f"{len(data)} bytes:sha256 {hashlib.sha256(data).hexdigest()}]"


def test_a_text_at_the_limit_is_whole() -> None:
    """A text of exactly 1 MiB is kept, so a mark cannot be mistaken for content."""
    text = "x" * columns.TEXT_BYTES_MAX

    assert columns.at_rest(TURN["user_text"], text) == text
    assert len(columns.at_rest(TURN["user_text"], text + "x")) > columns.TEXT_BYTES_MAX


def test_long_json_becomes_an_object_that_says_so() -> None:
    """Still JSON, with bytes and hash of the whole and its beginning."""
    text = json.dumps(["ü" * columns.TEXT_BYTES_MAX], ensure_ascii=False)

    stub = json.loads(columns.at_rest(CALL["error_json"], text))

    assert stub["everyturn_cut"]["bytes"] == len(text.encode())
    assert stub["everyturn_cut"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert text.startswith(stub["start"])


def test_payloads_are_never_cut() -> None:
    """Prompt, tools, parameters and response are whole at any length."""
    text = json.dumps(["x" * (2 * columns.TEXT_BYTES_MAX)])

    for name in ("prompt_messages_json", "tools_json", "parameters_json", "response_json"):
        assert columns.at_rest(CALL[name], text) == text


@pytest.mark.parametrize(
    "text", ["é" * columns.TEXT_BYTES_MAX, "\0" * (columns.TEXT_BYTES_MAX + 1)]
)
def test_what_was_cut_stays_as_it_is(text: str) -> None:
    """A text or JSON that was cut, read and stored again with its row is not cut once more."""
    once = columns.cut(text)
    stub = columns.cut_json(json.dumps([text], ensure_ascii=False))

    assert columns.cut(once) == once
    assert columns.cut_json(stub) == stub
    assert columns.cut(once + "x") != once + "x"
