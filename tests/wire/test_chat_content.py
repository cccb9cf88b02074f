from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import TranslationError
from everyturn.wire.dialects.chat_content import groups_of, is_thinking, read_content_list

SEGMENTS = [(False, "a"), (True, "b"), (True, "c"), (False, "d"), (False, "e"), (True, "f")]


def test_deltas_keep_the_order() -> None:
    """Deltas say segments in order: within one, reasoning comes before text."""
    assert groups_of(SEGMENTS, is_whole=False) == [
        {"content": "a"},
        {"reasoning_content": "bc", "content": "de"},
        {"reasoning_content": "f"},
    ]
    assert groups_of([], is_whole=False) == [{}]


def test_a_whole_message_has_one_group() -> None:
    """A whole message says all reasoning in one member and all text in the other."""
    assert groups_of(SEGMENTS, is_whole=True) == [{"content": "ade", "reasoning_content": "bcf"}]


def test_a_list_is_taken_apart() -> None:
    """Thinking becomes reasoning, plain text text; what stood beside is told as details."""
    reference = {"type": "reference", "reference_ids": [1]}
    items: list[Any] = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, reference]},
        {"type": "text", "text": "b"},
        {"type": "thinking", "thinking": "c", "signature": "s", "closed": True},
        {"type": "thinking", "thinking": []},
    ]

    read = read_content_list(items, "p")

    assert read.segments == [(True, "a"), (False, "b"), (True, "c"), (True, "")]
    assert read.others == [items[1]]
    assert not read.has_other
    assert read.details == [
        {"type": "thinking", "thinking": [reference]},
        {"type": "thinking", "signature": "s", "closed": True},
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "image_url", "image_url": "u"},
        {"type": "text", "text": "a", "annotations": []},
        {"type": "redacted_thinking"},
        {"type": ["thinking"]},
        {"text": "a"},
        "a",
    ],
)
def test_any_other_item_keeps_the_list(item: Any) -> None:
    """An item that is neither thinking nor plain text stays an item."""
    read = read_content_list([item], "p")

    assert read.has_other
    assert read.others == [item]
    assert read.segments == []


@pytest.mark.parametrize("inner", [None, 1, {}])
def test_thinking_without_thinking(inner: Any) -> None:
    """A thinking item whose thinking is neither text nor a list is a typed failure."""
    with pytest.raises(TranslationError) as failure:
        read_content_list(["a", {"type": "thinking", "thinking": inner}], "p")

    assert failure.value.param == "p[1]"


@pytest.mark.parametrize(
    ("item", "thinking"),
    [
        ({"type": "thinking"}, True),
        ({"type": "redacted_thinking"}, True),
        ({"type": "reasoning"}, True),
        ({"type": "text"}, False),
        ({"type": 1}, False),
        ({}, False),
        ("thinking", False),
    ],
)
def test_items_that_hold_reasoning_somewhere(item: Any, thinking: bool) -> None:
    """The types of reasoning items are known, whether or not the preset reads lists."""
    assert is_thinking(item) is thinking
