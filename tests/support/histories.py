"""Targets and builders for tests of reasoning in the history."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from everyturn.errors import CallerFault
from everyturn.wire.history import History, convert_history
from everyturn.wire.preset import Target
from tests.support.chat_requests import a_target

CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}]
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}

DETAILS = [
    {"type": "reasoning.text", "text": "t", "signature": "sig", "index": 0},
    {"type": "reasoning.encrypted", "data": "b64", "id": "rs_1", "index": 1},
]

PLAIN = a_target(read=("reasoning_content",))
OLLAMA = a_target(read=("reasoning",), history_carrier="reasoning")
OPENROUTER = a_target(
    read=("reasoning_details", "reasoning", "reasoning_content"),
    history="required",
    history_carrier="reasoning_details",
    history_exact=True,
)
MISTRAL = a_target(read=("content_list",), history_carrier="content_list")
TAGS = a_target(read=("reasoning",), history="as_tags", history_carrier="tags")
FORBIDDEN = a_target(history="forbidden")
IGNORED = a_target(read=("reasoning_content",), history="ignored")
DEEPSEEK = a_target(read=("reasoning_content",), history="required_tools")


def converted(target: Target, *assistant: dict[str, Any], thinking: bool | None = None) -> History:
    """A conversation with these assistant messages, as it goes to the target."""
    question = {"role": "user", "content": "q", "reasoning_content": "a user's own, no carrier"}
    messages = [question, *({"role": "assistant", **message} for message in assistant)]
    before = copy.deepcopy(messages)
    history = convert_history(messages, target, thinking=thinking)
    assert messages == before
    assert history.messages[0] is question
    return history


def back(target: Target, **message: Any) -> dict[str, Any]:
    """One assistant message as it goes to the target, without its role."""
    sent = converted(target, message).messages[1]
    return {key: value for key, value in sent.items() if key != "role"}


def refusal(target: Target, **message: Any) -> CallerFault:
    """The failure that an assistant message is refused with."""
    with pytest.raises(CallerFault) as failure:
        converted(target, message, thinking=True)
    assert "secret" not in failure.value.message
    return failure.value
