"""Reasoning is counted and marked wherever it stands, and nothing else is touched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.audit.reasoning import MARK, mark_tags, mark_tree, texts_in, without_echo

SAID = "I think, therefore"


def a_mark(carrier: str, chars: int = len(SAID), **more: Any) -> dict[str, Any]:
    """The mark that stands for reasoning of that carrier."""
    return {MARK: {"chars": chars, "carrier": carrier, **more}}


CARRIERS: list[tuple[Any, Any]] = [
    ({"reasoning_content": SAID}, {"reasoning_content": a_mark("reasoning_content")}),
    ({"reasoning": SAID}, {"reasoning": a_mark("reasoning")}),
    ({"thinking": SAID}, {"thinking": a_mark("thinking")}),
    ({"reasoning_content": ["x", SAID]}, {"reasoning_content": a_mark("reasoning_content", 19)}),
    (
        {"reasoning_details": [{"type": "reasoning.text", "text": SAID, "signature": "s"}]},
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": a_mark("reasoning_details"), "signature": "s"}
            ]
        },
    ),
    (
        {"reasoning_details": [{"type": "reasoning.summary", "summary": SAID, "index": 0}]},
        {
            "reasoning_details": [
                {"type": "reasoning.summary", "summary": a_mark("reasoning_details"), "index": 0}
            ]
        },
    ),
    (
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": SAID, "id": "rs_1"}]},
        {
            "reasoning_details": [
                {
                    "type": "reasoning.encrypted",
                    "data": a_mark("reasoning_details", encrypted=True),
                    "id": "rs_1",
                }
            ]
        },
    ),
    (
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": SAID}]}, "t"]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": a_mark("thinking")}]},
                "t",
            ]
        },
    ),
    (
        {"thinking_blocks": [{"type": "thinking", "thinking": SAID, "signature": "sig"}]},
        {
            "thinking_blocks": [
                {"type": "thinking", "thinking": a_mark("thinking_blocks"), "signature": "sig"}
            ]
        },
    ),
    (
        [{"type": "redacted_thinking", "data": SAID}],
        [{"type": "redacted_thinking", "data": a_mark("redacted_thinking", encrypted=True)}],
    ),
    (
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": SAID}]},
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": a_mark("reasoning")}],
        },
    ),
    (
        {"provider_specific_fields": {"reasoning_content": SAID}},
        {"provider_specific_fields": {"reasoning_content": a_mark("reasoning_content")}},
    ),
]


@pytest.mark.parametrize("given, expected", CARRIERS)
def test_text_of_a_carrier_becomes_a_mark(given: Any, expected: Any) -> None:
    """Each known carrier is marked in place; signatures, ids and the form stay."""
    marked = mark_tree(given)

    assert marked.value == expected
    assert SAID not in json.dumps(marked.value)
    assert mark_tree(marked.value).value == expected


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: text,
        lambda text: {"role": "tool", "content": text},
        lambda text: {"content": [{"type": "text", "text": f" {text}\n"}], "isError": False},
        lambda text: {"error": {"message": text}},
        lambda text: json.dumps(text),
    ],
)
def test_reasoning_in_json_that_is_a_string_is_marked(wrap: Any) -> None:
    """Results of tools and errors are often JSON in a string; its other members stay."""
    given = {"choices": [{"message": {"reasoning_content": SAID, "content": "said"}}], "n": 1.5}

    marked = mark_tree(wrap(json.dumps(given)))

    rest = json.dumps(marked.value)
    assert SAID not in rest
    assert "said" in rest
    assert "1.5" in rest
    assert (marked.chars, marked.carriers) == (len(SAID), ("reasoning_content",))


UNTOUCHED: list[Any] = [
    {"reasoning_content": None, "reasoning": "", "reasoning_details": [], "thinking": {}},
    {"reasoning": {"effort": "high", "exclude": True}, "thinking": {"type": "enabled"}},
    {"content": "I think <think> is a tag", "reasoning_effort": "high"},
    {"function": {"arguments": '{"reasoning": "mine"}', "name": "thought"}},
    {"function": {"parameters": {"properties": {"reasoning": {"type": "string"}}}}},
    {"usage": {"completion_tokens_details": {"reasoning_tokens": 12}}},
    {"extra_content": {"google": {"thought": True, "thought_signature": "c2ln"}}},
    {"input": {"thinking": "an argument of a tool"}},
    {"role": "assistant", "content": '{"reasoning": "a member of its answer"}'},
    {"choices": [{"message": {"content": '{"reasoning": "a member of its answer"}'}}]},
    {"role": "user", "content": [{"type": "text", "text": '{"thinking": "pasted"}'}]},
    {"role": "tool", "content": "I think: {not JSON"},
    {"role": "tool", "content": '{"reasoning_content": null, "a":  1.50}'},
    ['{"reasoning": "cut', '"thinking": "x"', '[]{"thinking": "two"}', "{thinking}"],
]


@pytest.mark.parametrize("tree", UNTOUCHED)
def test_what_is_no_reasoning_is_the_same_object(tree: Any) -> None:
    """Absence, controls, counts, signatures and the application's own words stay."""
    assert mark_tree(tree).value is tree
    assert mark_tree(tree).chars == 0


def test_an_answer_is_read_by_what_its_names_speak_of() -> None:
    """In an answer an unknown member that speaks of reasoning is marked, a control is not."""
    answer = {
        "reasoning_logprobs": {"content": [{"token": "I", "bytes": [73]}]},
        "my_thoughts": "hm",
        "reasoning_effort": "low",
        "thought_signature": "c2ln",
    }

    marked = mark_tree(answer, is_answer=True)

    assert marked.value == {
        "reasoning_logprobs": a_mark("reasoning_logprobs", 1),
        "my_thoughts": a_mark("my_thoughts", 2),
        "reasoning_effort": "low",
        "thought_signature": "c2ln",
    }
    assert marked.chars == 3
    assert mark_tree(answer).value is answer


def test_controls_of_a_request_are_no_reasoning() -> None:
    """An object under a carrier's name asks for reasoning where parameters stand."""
    parameters = {"reasoning": {"summary": "auto"}, "thinking": {"type": "enabled"}}

    assert mark_tree(parameters, has_controls=True).value is parameters


def test_code_points_are_counted() -> None:
    """One emoji beyond the basic plane is one character; carriers are listed once."""
    tree = {"a": [{"reasoning": "😀é"}, {"reasoning": "x"}], "thinking": "y"}

    marked = mark_tree(tree)

    assert (marked.chars, marked.carriers) == (4, ("reasoning", "thinking"))


TAGGED = [
    ("<think>ab</think>c", "<think>[reasoning:2 chars]</think>c", 2),
    ("a<think>b", "a<think>[reasoning:1 chars]", 1),
    ("ab</think>c", "[reasoning:2 chars]</think>c", 2),
    ("<think></think>c", "<think></think>c", 0),
    ("◁think▷ab◁/think▷c", "◁think▷[reasoning:2 chars]◁/think▷c", 2),
    ("<think>a</think>b<think>c</think>", None, 2),
    ("plain", "plain", 0),
]


@pytest.mark.parametrize("text, expected, taken", TAGGED)
def test_text_between_tags_is_marked(text: str, expected: str | None, taken: int) -> None:
    """Tags stay, what they hold goes; doing it again changes nothing."""
    marked, count = mark_tags(text)

    assert count == taken
    assert expected is None or marked == expected
    assert mark_tags(marked)[0] == marked


def test_an_echo_of_reasoning_is_found_again() -> None:
    """An error message loses the reasoning it repeats: plain, escaped, or cut short."""
    said = 'first "step" of a long plan\nthen the second step of it'
    texts = list(texts_in([{"role": "assistant", "reasoning_content": said}]))
    shown = f"[reasoning:{len(said)} chars]"

    assert without_echo(f"bad: {said}!", texts) == f"bad: {shown}!"
    assert without_echo(f"bad: {json.dumps(said)}", texts) == f'bad: "{shown}"'
    assert without_echo(f"bad: {said!r}", texts) == f"bad: '{shown}'"
    assert without_echo(f"bad: {said[:45]}...", texts) == f"bad: {shown}"
    assert without_echo("bad: step", texts) == "bad: step"
