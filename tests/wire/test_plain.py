"""Which whole answers are plain, and that all others go the strict way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from everyturn.errors import TranslationError
from everyturn.wire.limits import Limits
from everyturn.wire.plain import PLAIN_BYTES_MAX, plain_reply, read_answer
from everyturn.wire.preset import Preset, target_of
from everyturn.wire.reader import write
from everyturn.wire.stream import read_whole

TARGET = target_of(
    Preset(name="p", title="P", finish_failures=("error",)),
    name="m",
    base_url="http://127.0.0.1:9/v1",
)
MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": "Hi",
    "refusal": None,
    "annotations": [],
}
CHOICE: dict[str, Any] = {
    "index": 0,
    "message": MESSAGE,
    "logprobs": None,
    "finish_reason": "stop",
}
ANSWER: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [CHOICE],
    "usage": {"prompt_tokens": 1},
}


def test_a_common_answer_is_plain() -> None:
    """What OpenAI answers to a simple question: the strict way says the same of it."""
    data = write(ANSWER)

    reply, shown, notes = read_answer(data, TARGET, Limits())

    assert plain_reply(data, TARGET, Limits()) == reply == read_whole(data, TARGET, Limits())[0]
    assert (shown, notes) == (data, [])
    assert reply.choices[0].content == "Hi"


@pytest.mark.parametrize(
    "answer",
    [
        {**ANSWER, "usage": None},
        {"choices": [{**CHOICE, "message": {"content": None, "refusal": "No."}}]},
        {**ANSWER, "choices": [CHOICE, {**CHOICE, "index": 1}]},
        {**ANSWER, "choices": [{key: CHOICE[key] for key in ("message", "finish_reason")}]},
    ],
)
def test_more_answers_are_plain(answer: dict[str, Any]) -> None:
    """Null, a refusal, a second choice and a choice without an index change nothing of that."""
    data = write(answer)
    reply = plain_reply(data, TARGET, Limits())

    assert reply is not None
    assert reply == read_whole(data, TARGET, Limits())[0]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {**ANSWER, "usage": 1},
        {**ANSWER, "choices": None},
        {**ANSWER, "choices": []},
        {**ANSWER, "error": None},
        {**ANSWER, "choices": [None]},
        {**ANSWER, "choices": [{**CHOICE, "index": 1}]},
        {**ANSWER, "choices": [{**CHOICE, "index": False}]},
        {**ANSWER, "choices": [{**CHOICE, "delta": {}}]},
        {**ANSWER, "choices": [{**CHOICE, "finish_reason": None}]},
        {**ANSWER, "choices": [{**CHOICE, "finish_reason": ""}]},
        {**ANSWER, "choices": [{**CHOICE, "finish_reason": "error"}]},
        {**ANSWER, "choices": [{**CHOICE, "message": None}]},
        {**ANSWER, "choices": [{key: CHOICE[key] for key in ("index", "finish_reason")}]},
        {**ANSWER, "choices": [{**CHOICE, "message": {**MESSAGE, "content": []}}]},
        {**ANSWER, "choices": [{**CHOICE, "message": {**MESSAGE, "thought": None}}]},
    ],
)
def test_other_answers_are_for_the_strict_way(answer: Any) -> None:
    """What is odd in any place is not plain."""
    assert plain_reply(write(answer), TARGET, Limits()) is None


@pytest.mark.parametrize(
    "data",
    [b"{", write(ANSWER).replace(b"null", b"NaN"), write({**ANSWER, "id": "x" * PLAIN_BYTES_MAX})],
)
def test_unreadable_nonfinite_and_long_answers_are_for_the_strict_way(data: bytes) -> None:
    """Bad JSON has its failure there, NaN its flag, and what is long is not read twice."""
    assert plain_reply(data, TARGET, Limits()) is None


def test_an_answer_that_needs_more_is_for_the_strict_way() -> None:
    """Too few choices are flagged, and tags in content are looked for."""
    data = write(ANSWER)

    assert plain_reply(data, TARGET, Limits(), choices=2) is None
    assert plain_reply(data, replace(TARGET, tags="split"), Limits()) is None
    assert plain_reply(data, TARGET, Limits(text_bytes_max=len(data) - 1)) is None


def test_the_strict_way_is_taken_where_it_is_needed() -> None:
    """An answer that is not plain is read all the same, or refused with its failure."""
    message = {**MESSAGE, "tool_calls": []}
    data = write({**ANSWER, "choices": [{**CHOICE, "message": message}]})

    assert read_answer(data, TARGET, Limits())[0] == read_whole(data, TARGET, Limits())[0]
    with pytest.raises(TranslationError):
        read_answer(b"{", TARGET, Limits())
