"""The forms in which a provider wants reasoning back: details, content lists, tags."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chat_requests import a_target
from tests.support.histories import DETAILS, MISTRAL, OPENROUTER, TAGS, THOUGHT, back, converted

# ------------------------------------------------------------------- reasoning_details


def test_details_go_verbatim_and_an_equal_text_does_not_go_twice() -> None:
    """`reasoning_details` keep order and bytes; the alias that repeats their text is left out."""
    sent = converted(OPENROUTER, {"reasoning_details": DETAILS, "reasoning_content": "t"})

    assert sent.messages[1] == {"role": "assistant", "reasoning_details": DETAILS}
    assert sent.messages[1]["reasoning_details"] is DETAILS
    assert sent.reasoning_chars == 1


def test_encrypted_details_need_no_text() -> None:
    """A turn with encrypted items alone goes back whole."""
    encrypted = [DETAILS[1]]

    assert back(OPENROUTER, content="4", reasoning_content=None, reasoning_details=encrypted) == {
        "content": "4",
        "reasoning_details": encrypted,
    }
    assert converted(OPENROUTER, {"reasoning_details": encrypted}).reasoning_chars == 0


def test_a_text_that_details_do_not_hold_goes_beside_them() -> None:
    """Both values reached the client, so both go back."""
    sent = back(OPENROUTER, reasoning_content="more", reasoning_details=DETAILS)

    assert sent == {"reasoning": "more", "reasoning_details": DETAILS}


def test_a_text_without_details_goes_as_text() -> None:
    """No item is invented for a client that kept only the text."""
    bare = a_target(read=("reasoning_details",), history_carrier="reasoning_details")

    assert back(OPENROUTER, reasoning_content="t") == {"reasoning": "t"}
    assert back(bare, reasoning="t") == {"reasoning_content": "t"}
    assert back(OPENROUTER, reasoning_content=None) == {"reasoning": None}


def test_summaries_are_counted() -> None:
    """The text of details counts as reasoning where there is no other."""
    details = [{"type": "reasoning.summary", "summary": "abc"}, {"type": "x", "text": 5}]

    assert converted(OPENROUTER, {"reasoning_details": details}).reasoning_chars == 3


# ------------------------------------------------------------------- content lists


@pytest.mark.parametrize(
    "message, content",
    [
        ({"content": "a", "reasoning_content": "t"}, [THOUGHT, {"type": "text", "text": "a"}]),
        ({"content": "", "reasoning": "t"}, [THOUGHT]),
        ({"content": None, "reasoning_content": "t", "reasoning_details": []}, [THOUGHT]),
        ({"reasoning_content": "t"}, [THOUGHT]),
        ({"content": "a", "reasoning_content": ""},
         [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}]),
        ({"content": [{"type": "reference", "ids": [1]}], "reasoning_content": "t"},
         [THOUGHT, {"type": "reference", "ids": [1]}]),
        ({"content": "a", "reasoning_content": "t",
          "reasoning_details": [{"type": "thinking", "closed": True, "signature": "s"}]},
         [{"type": "thinking", "closed": True, "signature": "s",
           "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "a"}]),
        ({"content": "a", "reasoning_details": [{"type": "thinking", "signature": "s"}]},
         [{"type": "thinking", "signature": "s", "thinking": []}, {"type": "text", "text": "a"}]),
        ({"content": "", "reasoning_content": "t",
          "reasoning_details": [{"type": "thinking", "signature": "s"},
                                {"type": "thinking", "thinking": [{"type": "reference"}]}]},
         [{"type": "thinking", "signature": "s", "thinking": [{"type": "text", "text": "t"}]},
          {"type": "thinking", "thinking": [{"type": "reference"}]}]),
        ({"content": "a", "reasoning_content": None}, "a"),
        ({"content": "a", "thinking": None}, "a"),
    ],
)  # fmt: skip
def test_a_content_list_is_rebuilt(message: dict[str, Any], content: Any) -> None:
    """Content, text and details become the list that the provider sent."""
    assert back(MISTRAL, **message) == {"content": content}


def test_a_native_content_list_stays() -> None:
    """A list with thinking items goes as it came, also with copies of what stands in it."""
    inner = [
        {"type": "text", "text": "t"},
        {"type": "text", "text": "u", "more": 1},
        {"type": "reference", "text": "w"},
        {"type": "text", "text": 5},
        "odd",
    ]
    native = [
        {"type": "thinking", "thinking": inner, "closed": True},
        {"type": "thinking", "thinking": "v"},
        {"type": "text", "text": "a"},
    ]
    details = [{"type": "thinking", "closed": True, "thinking": inner[1:]}]

    for copies in ({}, {"reasoning_content": "tv"}, {"reasoning_details": details}):
        assert back(MISTRAL, content=native, **copies) == {"content": native}
        assert back(MISTRAL, **copies, content=native) == {"content": native}


# ------------------------------------------------------------------- tags


@pytest.mark.parametrize(
    "content, tagged",
    [
        ("a", "<think>t</think>a"),
        (None, "<think>t</think>"),
        ("", "<think>t</think>"),
        ("<think>t</think>a", "<think>t</think>a"),
        ([{"type": "text", "text": "a"}],
         [{"type": "text", "text": "<think>t</think>"}, {"type": "text", "text": "a"}]),
    ],
)  # fmt: skip
def test_reasoning_goes_as_tags(content: Any, tagged: Any) -> None:
    """Reasoning stands in tags in front of the content, once, and the record is told where."""
    history = converted(TAGS, {"content": content, "reasoning_content": "t"})

    assert history.messages[1] == {"role": "assistant", "content": tagged}
    assert history.tagged == ((1, len("<think>t</think>")),)
    assert history.reasoning_chars == 1


def test_tags_are_those_of_the_target() -> None:
    """The operator's tags are used, and an empty thought keeps its pair of them."""
    target = a_target(
        history="as_tags", history_carrier="tags", tag=("<thought>", "</thought>"), tags="marked"
    )

    assert back(target, content="a", reasoning="") == {"content": "<thought></thought>a"}
    assert back(target, content="a", reasoning=None) == {"content": "a"}


def test_a_content_list_is_rebuilt_where_text_is_the_carrier() -> None:
    """What stood beside thinking items goes back in a list, also beside another carrier."""
    target = a_target(read=("content_list", "reasoning_content"))
    details = [{"type": "thinking", "signature": "s"}]

    assert back(target, content="", reasoning_content="t", reasoning_details=details) == {
        "content": [{**details[0], "thinking": THOUGHT["thinking"]}]
    }
    assert back(target, content="a", reasoning_content="t") == {
        "content": "a",
        "reasoning_content": "t",
    }


def test_the_carrier_of_the_history_needs_no_reading() -> None:
    """A form that the provider takes back is accepted, also where its answers do not have it."""
    details = a_target(read=("reasoning_content",), history_carrier="reasoning_details")
    lists = a_target(read=("reasoning_content",), history_carrier="content_list")

    assert back(details, reasoning_details=DETAILS) == {"reasoning_details": DETAILS}
    assert back(lists, content=[THOUGHT]) == {"content": [THOUGHT]}
