"""Whatever odd message a client was shown, the history that holds it is accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from everyturn.errors import Failure
from everyturn.presets.load import load_preset, preset_names
from everyturn.wire.dialects.openai_chat import encode
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target
from everyturn.wire.reader import read_provider, write
from everyturn.wire.request import parse_chat_request
from everyturn.wire.stream import read_whole
from tests.support.chat_replies import a_message, a_target

PRESETS = [a_target(load_preset(name)) for name in preset_names()]
TARGETS = [
    *PRESETS,
    *(replace(target, on_drift="carry") for target in PRESETS),
    *(replace(target, history_reasoning="strip") for target in PRESETS),
    a_target(read=("reasoning",), history_key="thoughts"),
    a_target(read=("thinking", "thinking_blocks"), history_carrier="reasoning"),
    a_target(read=("reasoning_content",), tags="split", history="as_tags", history_carrier="tags"),
    a_target(read=("content_list", "reasoning_content")),
]

empty = st.sampled_from([None, "", [], {}])
words = st.sampled_from(["a", "<think>b</think>", "<think>", "é\x00\U0001f600"])
texts = st.one_of(words, empty, st.just(5))
items = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "more": 1},
        {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]},
        {"type": "thinking", "thinking": [{"type": "reference"}], "signature": "s"},
        {"type": "thinking", "thinking": [], "closed": True},
        {"type": "thinking", "thinking": "u"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "redacted_thinking", "data": "d"},
        "text",
    ]
)
details = st.one_of(
    empty,
    st.lists(st.sampled_from([{"type": "reasoning.text", "text": "a"}, {"data": "d"}]), max_size=2),
    st.sampled_from([{"x": 1}, "d", ["d"]]),
)
call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{ }"}}
messages = st.fixed_dictionaries(
    {"content": st.one_of(words, st.just(""), st.none(), st.lists(items, max_size=3))},
    optional={
        "reasoning_content": texts,
        "reasoning": texts,
        "thinking": texts,
        "reasoning_details": details,
        "thinking_blocks": details,
        "thought_signature": st.one_of(empty, st.just("s")),
        "extra_content": st.just({"google": {"thought": True}}),
        "refusal": st.sampled_from([None, ""]),
        "annotations": st.sampled_from([None, []]),
        "tool_calls": st.sampled_from([None, [], [call]]),
    },
)


def shown_by(target: Target, message: dict[str, Any]) -> dict[str, Any] | None:
    """The message that a client sees of this one; None where the answer is refused."""
    try:
        _, shown, _, _ = read_whole(write(a_message(message)), target, Limits())
    except Failure:
        return None
    [choice] = read_provider(shown).value["choices"]
    return {"role": "assistant", **choice["message"]}


@given(message=messages, target=st.sampled_from(TARGETS))
@example(message={"content": "a", "reasoning_content": {}}, target=TARGETS[0])
@example(message={"content": ["text"]}, target=TARGETS[0])
@example(
    message={"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "a"}] * 2},
    target=next(target for target in TARGETS if target.preset.name == "openrouter"),
)
def test_what_was_shown_is_taken_back(message: dict[str, Any], target: Target) -> None:
    """Any message that a client saw is accepted for the same model, opaque parts untouched."""
    shown = shown_by(target, message)
    if shown is None:
        return
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}, shown]}

    result = encode(parse_chat_request(write(body)), target, api_key=None)

    sent = json.loads(result.body)["messages"][1]
    for key in ("tool_calls", "extra_content", "thought_signature"):
        assert sent.get(key, "absent") == shown.get(key, "absent")
    text = shown.get("reasoning_content")
    if not isinstance(text, str) or not text:
        return
    assert result.reasoning_in_history >= len(text)
    if not result.notes:
        # Typed items hold the text in pieces, each with its type beside it.
        items = [item for item in sent.get("reasoning_details") or [] if isinstance(item, dict)]
        pieces = "".join(str(item.get("text") or item.get("summary") or "") for item in items)
        assert text in "".join(map(str, strings_of(sent))) or text == pieces


def strings_of(value: Any) -> list[str]:
    """Every string of a tree, in its order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in strings_of(item)] if isinstance(value, list) else []
