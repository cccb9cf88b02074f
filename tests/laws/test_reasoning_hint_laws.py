"""Law: the hint that spares looking for reasoning sees every tree in which there is some."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit.reasoning import HINT, mark_tree
from everyturn.audit.scan import Scanner
from everyturn.wire.reader import write

SCANNER = Scanner([HINT])

names = st.sampled_from(
    [
        "reasoning_content",
        "reasoning",
        "thinking_blocks",
        "reasoning_details",
        "reasoningContent",
        "x-thoughts",
        "my reasoning",
        'the "thinking"',
        "thinking\\",
        "thinking\n",
        "RÉFLEXION_THINK_É",
        "reasoning_tokens",
        "content",
        "type",
        "text",
        "arguments",
    ]
) | st.text(max_size=3)
texts = st.sampled_from(
    ["", "because", "thinking", "thought", "reasoning.text", "redacted_thinking"]
)
leaves = texts | st.integers(0, 9) | st.booleans() | st.none() | st.text(max_size=4)
trees: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@given(trees, st.booleans(), st.booleans())
def test_no_reasoning_is_missed(tree: Any, is_answer: bool, has_controls: bool) -> None:
    """Where marking changes a tree, the hint matches its text."""
    marked = mark_tree(tree, is_answer=is_answer, has_controls=has_controls)

    if marked.value is not tree:
        assert SCANNER.scan(write(tree))


@given(trees, st.booleans(), st.integers(1, 7))
def test_no_reasoning_inside_strings_is_missed(tree: Any, is_answer: bool, depth: int) -> None:
    """The same where the tree is JSON in a string, and that in JSON of a string again."""
    for _ in range(depth):
        tree = {"result": write(tree).decode()}

    marked = mark_tree(tree, is_answer=is_answer)

    if marked.value is not tree:
        assert SCANNER.scan(write(tree))


@pytest.mark.parametrize(
    "tree",
    [
        {"usage": {"completion_tokens_details": {"reasoning_tokens": 0}}},
        {"content": "I think, therefore I am: a thought.", "reasoning_content": None},
    ],
)
def test_common_answers_without_reasoning_are_spared(tree: Any) -> None:
    """Counts of reasoning and texts about thinking need no second look."""
    assert not SCANNER.scan(write(tree))
