"""Laws of marks: no reasoning and no media rest, hints see what walks change, marks stay."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit import media, reasoning
from everyturn.audit.cleaning import Cleaner
from everyturn.audit.redact import Redactor
from everyturn.audit.scan import Scanner
from everyturn.wire.reader import write

KEY = b"k" * 32
CLEANER = Cleaner(Redactor(KEY), KEY)
THOUGHT = "MARKER thought"
PICTURE = base64.b64encode(b"MARKER picture " * 8).decode()

carriers = st.sampled_from(
    ["reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks"]
)
other_names = st.sampled_from(
    ["content", "role", "message", "usage", "reasoning_tokens", "reasoning_effort", 'my"name', "a"]
)
plain = st.one_of(st.text(max_size=8), st.integers(), st.none(), st.booleans(), st.floats(0, 1))
thoughts = st.one_of(
    st.just(THOUGHT),
    st.lists(st.just(THOUGHT), min_size=1, max_size=2),
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["reasoning.text", "thinking", "text"])},
            optional={
                "text": st.just(THOUGHT),
                "thinking": st.just([{"type": "text", "text": THOUGHT}]),
                "summary": st.just(THOUGHT),
                "data": st.just(THOUGHT),
                "unknown": st.just(THOUGHT),
                "signature": st.text(max_size=4),
                "index": st.integers(0, 3),
            },
        ),
        max_size=2,
    ),
)
reasoned = st.one_of(
    st.dictionaries(carriers, thoughts, min_size=1, max_size=2),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["thinking", "redacted_thinking", "reasoning", "thought"]),
            "thinking": st.just(THOUGHT),
            "data": st.just(THOUGHT),
        }
    ),
)
pictured = st.one_of(
    st.fixed_dictionaries({"url": st.just(f"data:image/png;base64,{PICTURE}")}),
    st.fixed_dictionaries({"input_audio": st.just({"data": PICTURE, "format": "wav"})}),
    st.fixed_dictionaries({"file": st.just({"file_data": PICTURE})}),
    st.fixed_dictionaries({"text": st.just(f"see data:image/png;base64,{PICTURE} there")}),
    st.fixed_dictionaries({"source": st.just({"type": "base64", "data": PICTURE})}),
)
trees = st.recursive(
    plain | reasoned | pictured,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(other_names, inner, max_size=3),
    max_leaves=8,
)


@given(trees, st.booleans())
def test_neither_thoughts_nor_pictures_rest(tree: Any, is_answer: bool) -> None:
    """Whatever stands around them, their text is nowhere in what is stored."""
    cleaned = CLEANER.said(tree) if is_answer else CLEANER.sent(write(tree))

    json.loads(cleaned.value)
    assert "MARKER" not in cleaned.value
    assert PICTURE not in cleaned.value


@given(trees, st.booleans(), st.integers(1, 7))
def test_no_thoughts_rest_in_json_inside_strings(tree: Any, is_answer: bool, depth: int) -> None:
    """Nor where the tree came as text, as results of tools do; cleaning it again is no change."""
    for _ in range(depth):
        tree = {"role": "tool", "content": json.dumps(tree)}

    cleaned = CLEANER.said(tree) if is_answer else CLEANER.sent(write(tree))

    again = json.loads(cleaned.value)
    assert "MARKER" not in cleaned.value
    assert CLEANER.said(again).value == write(again).decode()


@given(trees, st.booleans())
def test_marks_stay_as_they_are(tree: Any, is_answer: bool) -> None:
    """Cleaning what was cleaned changes nothing."""
    cleaned = CLEANER.said(tree) if is_answer else CLEANER.sent(write(tree))
    again = json.loads(cleaned.value)

    assert CLEANER.said(again).value == write(again).decode()


@given(trees, st.booleans())
def test_the_hints_see_what_the_walks_change(tree: Any, is_answer: bool) -> None:
    """A tree without a hit is one that neither walk would change."""
    raw = write(tree)

    if reasoning.mark_tree(tree, is_answer=is_answer).value is not tree:
        assert Scanner([reasoning.HINT]).scan(raw)
    if media.hash_media(tree, KEY) is not tree:
        assert Scanner([media.HINT]).scan(raw)


@given(st.text(), st.lists(st.sampled_from(["<think>", "</think>", "a", "\n"]), max_size=8))
def test_tags_hide_what_they_hold(text: str, pieces: list[str]) -> None:
    """What stood between tags is gone, and marking it again changes nothing."""
    given_text = f"<think>MARKER{text.replace('<', '')}</think>" + "".join(pieces)

    marked, taken = reasoning.mark_tags(given_text)

    assert "MARKER" not in marked
    assert taken >= len("MARKER")
    assert (
        reasoning.mark_tags(marked) == (marked, taken) or reasoning.mark_tags(marked)[0] == marked
    )
