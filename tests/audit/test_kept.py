"""Reasoning that is kept: what is taken, how it is named, and what stands in the record then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.audit.kept import DAY_US
from everyturn.audit.reasoning import MARK, mark_tags, mark_tree
from everyturn.audit.records import Record
from everyturn.audit.schema import LOGS
from tests.support.chat_requests import a_target
from tests.support.recording import PRESET, Turn, a_reply

THOUGHT = "I wonder about it"
SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"


def a_kept_turn(**facts: Any) -> Turn:
    """A turn with a target whose reasoning is kept for two days."""
    return Turn(target=a_target(PRESET, keep_reasoning_days=2, **facts))


def test_a_text_is_taken_with_its_facts() -> None:
    """Redacted, with call, carrier, length and end; its mark refers to it."""
    turn = a_kept_turn()
    turn.open(messages=[{"role": "user", "content": "hello"}])
    group = turn.close(reply=a_reply("a", reasoning_content=f"{THOUGHT}: {SECRET}"))

    (text,) = group.reasoning
    assert text.text.startswith(f"{THOUGHT}: [redacted:openai_key:")
    assert (text.turn_id, text.model_call_id) == (turn.turn.turn_id, "call_1")
    assert text.expires_at == 2_000 + 2 * DAY_US
    assert (text.carrier, text.chars) == ("reasoning_content", len(f"{THOUGHT}: {SECRET}"))
    assert text.redactions_json == '{"openai_key":1}'
    message = json.loads(turn.call.response_json or "")["choices"][0]["message"]
    assert message["reasoning_content"][MARK]["ref"] == text.reasoning_id
    assert turn.call.redactions_json == "{}"
    assert SECRET not in turn.at_rest


def test_without_keeping_nothing_is_taken() -> None:
    """A target that counts gives no text and marks without a ref."""
    turn = Turn()
    turn.open(messages=[{"role": "assistant", "content": "a", "reasoning_content": THOUGHT}])
    group = turn.close(reply=a_reply("a", reasoning_content=THOUGHT))

    assert [one.reasoning for one in turn.groups] == [(), ()]
    assert group.reasoning == ()
    assert THOUGHT not in turn.at_rest
    assert '"ref"' not in turn.at_rest


@pytest.mark.parametrize("carrier", ["reasoning_content", "reasoning", "content_list", "tags"])
def test_reasoning_in_a_history_is_taken(carrier: str) -> None:
    """Whatever form the provider wants it in: the text is kept, the message has its mark."""
    history = "as_tags" if carrier == "tags" else "optional"
    preset = a_target(history=history, history_carrier=carrier, read=("reasoning_content",)).preset
    turn = Turn(target=a_target(preset, keep_reasoning_days=2))
    group = turn.open(
        messages=[
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "said", "reasoning_content": THOUGHT},
        ]
    )

    (text,) = group.reasoning
    stored = turn.listed(turn.call.prompt_messages_json)
    assert THOUGHT in text.text
    assert text.reasoning_id in json.dumps(stored)
    assert THOUGHT not in json.dumps(stored)


def test_equal_texts_have_one_name() -> None:
    """In answer and history, in one turn or two, a text is named the same; another one is not."""
    names = []
    for reasoning in (THOUGHT, THOUGHT, "something else"):
        turn = a_kept_turn()
        opened = turn.open(
            messages=[{"role": "assistant", "content": "a", "reasoning_content": reasoning}]
        )
        closed = turn.close(reply=a_reply("a", reasoning_content=reasoning))
        assert opened.reasoning[0].reasoning_id == closed.reasoning[0].reasoning_id
        names.append(opened.reasoning[0].reasoning_id)

    assert names[0] == names[1] != names[2]


def test_a_structure_is_kept_as_json() -> None:
    """What is reasoning as a whole is one mark and one text, the JSON of it."""
    kept = []

    def keep(text: str, carrier: str, is_encrypted: bool) -> str:
        kept.append((text, carrier, is_encrypted))
        return "0" * 32

    tree = {"thoughts": [1, THOUGHT], "reasoning_details": [{"data": "ZW5j"}]}
    marked = mark_tree(tree, is_answer=True, keep=keep).value

    assert kept == [
        (f'[1,"{THOUGHT}"]', "thoughts", False),
        ("ZW5j", "reasoning_details", True),
    ]
    assert marked["thoughts"][MARK]["ref"] == "0" * 32
    assert mark_tree(marked, is_answer=True).value == marked


def test_a_mark_in_plain_text_stays() -> None:
    """A mark with a ref is not counted as reasoning again; what only looks like one is."""
    mark = f"[reasoning:12 chars:{'0a' * 16}]"

    assert mark_tags(f"<think>{mark}</think>a") == (f"<think>{mark}</think>a", len(mark))
    assert mark_tags("<think>[reasoning:x chars:0]</think>")[0] != mark


def test_no_log_can_hold_a_text() -> None:
    """The types of the logs are the records; a kept text is none of them and stands in no field."""
    assert {log.type.__name__ for log in LOGS} == {kind.__name__ for kind in Record.__args__}
    for log in LOGS:
        assert log.type.__name__ != "ReasoningText"
        names = {column.name for column in log.columns if "reasoning" in column.name}
        assert names <= {"reasoning_tokens", "reasoning_carrier", "reasoning_chars"}
