from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import ReasoningConflict
from everyturn.wire.preset import CARRIERS
from everyturn.wire.reasoning import (
    MarkedSplitter,
    Mirror,
    TagSplitter,
    detail_text,
    is_empty,
    is_marked_thought,
    is_withheld,
    speaks_of_reasoning,
)

THINK = ("<think>", "</think>")
THOUGHT = ("<thought>", "</thought>")

# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("key", "speaks"),
    [
        ("reasoning", True),
        ("model_reasoning_trace", True),
        ("Thinking", True),
        ("rethink", True),
        ("thoughts", True),
        ("finish_reason", False),
        ("native_finish_reason", False),
        ("stop_reason", False),
        ("content", False),
    ],
)
def test_names_that_speak_of_reasoning(key: str, speaks: bool) -> None:
    """A name speaks of reasoning by what it holds; a reason to finish is none."""
    assert speaks_of_reasoning(key) is speaks


@pytest.mark.parametrize(("value", "empty"), [(None, True), ("", True), ([], True), ({}, True)])
def test_empty_values(value: Any, empty: bool) -> None:
    """Null, "", [] and {} say nothing; 0 and false are values."""
    assert is_empty(value) is empty
    assert not is_empty(0)
    assert not is_empty(False)


def test_what_is_withheld() -> None:
    """Withheld is what holds reasoning; opaque signatures and empty members are not."""
    assert is_withheld("reasoning_details", [{}])
    assert is_withheld("my_thoughts", "x")
    assert not is_withheld("thought_signature", "x")
    assert not is_withheld("reasoning", None)
    assert not is_withheld("content", "x")


@pytest.mark.parametrize("carrier", [name for name in CARRIERS if name != "content_list"])
def test_known_carriers_speak_for_themselves(carrier: str) -> None:
    """Every known carrier is told by its name alone; a content list is told by its items."""
    assert speaks_of_reasoning(carrier)


# ------------------------------------------------------------------ mirrors


def test_one_carrier_is_told_as_it_comes() -> None:
    """While one carrier speaks, all of it is new."""
    mirror = Mirror()

    assert [mirror.add("a", text) for text in ("x", "", "y")] == ["x", "", "y"]
    assert mirror.carriers == ("a",)
    assert not mirror.is_shared
    assert mirror.lagging == set()


def test_equal_carriers_are_told_once() -> None:
    """B05: what a mirror repeats is not new."""
    mirror = Mirror()

    assert [mirror.add(name, "x") for name in "abab"] == ["x", "", "x", ""]
    assert mirror.parts == ["x", "x"]
    assert mirror.is_shared
    assert mirror.lagging == set()


def test_the_longer_is_told_while_one_lags() -> None:
    """While one text is a prefix of the other, the longer is told, whoever says it first."""
    mirror = Mirror()

    new = [
        mirror.add(name, text)
        for name, text in [("a", "one"), ("b", "on"), ("b", "e two"), ("a", " tw"), ("a", "o!")]
    ]

    assert new == ["one", "", " two", "", "!"]
    assert "".join(mirror.parts) == "one two!"
    assert mirror.lagging == {"b"}
    assert mirror.add("b", "!") == ""
    assert mirror.lagging == set()


def test_a_carrier_that_comes_late_is_compared_from_the_start() -> None:
    """A mirror that appears in the middle has to say all that was said."""
    mirror = Mirror()
    mirror.add("a", "one ")
    mirror.parts.append("two")

    assert mirror.add("b", "one two three") == " three"
    assert mirror.lagging == {"a"}
    assert mirror.add("a", " three") == ""
    assert mirror.lagging == set()


@pytest.mark.parametrize("text", ["X", "cX", "X" * 100])
def test_different_carriers_conflict(text: str) -> None:
    """B05: two texts of which none is a prefix of the other conflict; the message has neither."""
    mirror = Mirror()
    mirror.add("a", "ab")
    mirror.add("b", "a")

    with pytest.raises(ReasoningConflict) as conflict:
        mirror.add("b", text)

    assert "`b` differs from its mirror after character" in conflict.value.message
    assert "X" not in conflict.value.message
    assert conflict.value.param == "b"


# ------------------------------------------------------------------ tags


def segments_of(splitter: TagSplitter, *texts: str) -> list[tuple[bool, str]]:
    """What a splitter says of these pieces, neighbours of one kind joined."""
    found = [segment for text in texts for segment in splitter.feed(text)]
    joined: list[tuple[bool, str]] = []
    for is_reasoning, text in [*found, *splitter.close()]:
        assert text
        if joined and joined[-1][0] == is_reasoning:
            joined[-1] = (is_reasoning, joined[-1][1] + text)
        else:
            joined.append((is_reasoning, text))
    return joined


@pytest.mark.parametrize("cut", range(len("<think>a</think>b") + 1))
def test_a_tag_may_be_cut_anywhere(cut: int) -> None:
    """B09: every split position of every tag gives the same."""
    text = "<think>a</think>b"

    assert segments_of(TagSplitter(THINK), text[:cut], text[cut:]) == [(True, "a"), (False, "b")]


def test_a_false_prefix_is_released() -> None:
    """B09: what only began like a tag goes out unchanged."""
    assert segments_of(TagSplitter(THINK), "<think>a</th", "x>b</think", ">c") == [
        (True, "a</thx>b"),
        (False, "c"),
    ]
    assert segments_of(TagSplitter(THINK), "a <", "<thi", "<think>b") == [
        (False, "a <<thi"),
        (True, "b"),
    ]


def test_only_what_may_become_a_tag_is_held() -> None:
    """B09: the longest end that could still become the tag is held, and no more."""
    splitter = TagSplitter(THINK)

    assert splitter.feed("abc<th") == [(False, "abc")]
    assert splitter.feed("") == []
    assert splitter.feed("e") == [(False, "<the")]


def test_exact_bytes_around_tags() -> None:
    """Line ends and blanks around tags stay, and any number of thoughts is split."""
    text = "a\n<think>\n b \n</think>\n\nc<think></think>d"

    assert segments_of(TagSplitter(THINK), text) == [
        (False, "a\n"),
        (True, "\n b \n"),
        (False, "\n\ncd"),
    ]


def test_an_open_tag_at_the_end() -> None:
    """A thought that nobody closed is reasoning, and what was held of a tag is part of it."""
    splitter = TagSplitter(THINK)

    assert segments_of(splitter, "<think>a</thi") == [(True, "a</thi")]
    assert splitter.inside


def test_many_tags_cost_their_length() -> None:
    """A text of nothing but tags is split without copying the rest for each."""
    assert segments_of(TagSplitter(THINK), "<think></think>" * 200_000) == []


# ------------------------------------------------------------------ marked thoughts


def marked(splitter: MarkedSplitter, *pieces: tuple[str, bool]) -> list[tuple[bool, str]]:
    """What a splitter says of these pieces, each with its mark."""
    found = [s for text, is_marked in pieces for s in splitter.feed(text, is_marked=is_marked)]
    return found + splitter.close()


def test_a_marked_thought() -> None:
    """B02: marked text from its tag on is reasoning, until the closing tag."""
    pieces = [("<thought>a", True), ("b", True), ("</thought>c", False), ("d", False)]

    assert marked(MarkedSplitter(THOUGHT), *pieces) == [
        (True, "a"),
        (True, "b"),
        (False, "c"),
        (False, "d"),
    ]


def test_a_mark_without_its_tag_and_a_tag_without_its_mark() -> None:
    """B02: neither alone makes content reasoning."""
    assert marked(MarkedSplitter(THOUGHT), ("a <thought>b", True)) == [(False, "a <thought>b")]
    assert marked(MarkedSplitter(THOUGHT), ("<thought>a", False)) == [(False, "<thought>a")]
    assert marked(MarkedSplitter(THOUGHT), ("", True)) == []


def test_a_marked_tag_may_be_cut() -> None:
    """B09: the tags of a marked thought may be split over pieces."""
    pieces = [("<tho", True), ("", True), ("ught>a</tho", False), ("ught>b", False)]

    assert marked(MarkedSplitter(THOUGHT), *pieces) == [(True, "a"), (False, "b")]


def test_what_only_began_like_a_marked_tag() -> None:
    """B09: the beginning of a tag that does not go on is content; inside, it is reasoning."""
    assert marked(MarkedSplitter(THOUGHT), ("<tho", True), ("x", True)) == [(False, "<thox")]
    assert marked(MarkedSplitter(THOUGHT), ("<tho", True)) == [(False, "<tho")]
    assert marked(MarkedSplitter(THOUGHT), ("<thought>", True), ("</tho", True)) == [
        (True, "</tho")
    ]


@pytest.mark.parametrize(
    ("message", "is_thought"),
    [
        ({"extra_content": {"google": {"thought": True}}}, True),
        ({"extra_content": {"vertex": {"thought": True}}}, True),
        ({"extra_content": {"google": {"thought": False}}}, False),
        ({"extra_content": {"google": {"thought": "true"}}}, False),
        ({"extra_content": {"google": True}}, False),
        ({"extra_content": "x"}, False),
        ({}, False),
    ],
)
def test_the_mark(message: dict[str, Any], is_thought: bool) -> None:
    """The mark is `thought: true` of the provider's extra content, and nothing like it."""
    assert is_marked_thought(message) is is_thought


def test_the_text_of_details() -> None:
    """Text and summaries of detail items are readable; encrypted items have no text."""
    items = [
        {"type": "reasoning.text", "text": "a"},
        {"type": "reasoning.summary", "summary": "b"},
        {"type": "reasoning.encrypted", "data": "x"},
        {"text": 1},
        "odd",
    ]

    assert detail_text(items) == "ab"
