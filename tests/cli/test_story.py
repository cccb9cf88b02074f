"""The story of a turn, line by line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everyturn.audit.records import ModelCall, TurnAudit
from everyturn.cli.story import Line, story
from everyturn.store.document import document
from tests.support.store_records import (
    START,
    a_call,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn_id,
    an_access,
)


def told(**columns: Any) -> list[Line]:
    """The story of a turn with one call that has these columns."""
    call = ModelCall(model_call_id="c", turn_id="t", timestamp=0, **columns)
    turn = TurnAudit(turn_id="t", timestamp=0)
    return list(
        story(
            {
                "turn": msgspec.structs.asdict(turn) | {"redactions_json": {}},
                "access_events": [],
                "tool_calls": [],
                "retrieval_events": [],
                "quality_reviews": [],
                "model_calls": [msgspec.structs.asdict(call) | {"redactions_json": {}} | columns],
            }
        )
    )


def test_the_rows_of_a_turn_are_told_in_the_order_of_their_times() -> None:
    """Requests, searches, calls, tools and reviews, whoever recorded them, by when they began."""
    turn = TurnAudit(
        turn_id=a_turn_id(), timestamp=START, duration_ms=5.0, tool_call_count=1, retrieval_count=0
    )
    second = 1_000_000
    found = {
        "turn": msgspec.structs.asdict(turn) | {"sources_by_field_json": '{"user_text":"gateway"}'},
        "access_events": [an_access(turn, timestamp=START, method="POST", path_template="/a")],
        "model_calls": [a_call(turn, timestamp=START + 3 * second, requested_model="m")],
        "tool_calls": [
            a_tool_call(
                turn,
                timestamp=START + 2 * second,
                tool_name="look\x1b[2Jup",
                error_code="E1",
                target_service="orders",
                request_json='{"id":7}',
            )
        ],
        "retrieval_events": [
            a_retrieval(turn, timestamp=START + second, query_text="why", sources_json="[7]")
        ],
        "quality_reviews": [
            a_review(turn, created_at=START + 4 * second, score_safety=0.5, notes="late")
        ],
    }
    rows = {
        name: [msgspec.structs.asdict(row) for row in value] if isinstance(value, list) else value
        for name, value in found.items()
    }

    lines = list(story(document(rows)))

    assert [line.label for line in lines if line.is_head] == [
        f"turn {turn.turn_id}",
        "request POST /a → no answer",
        "retrieval sources",
        "tool internal look\\x1b[2Jup: ok",
        "call 1 of 1: m",
        "review human",
        "end",
    ]
    said = {(line.label, line.text) for line in lines}
    assert {("query", "why"), ("source", "7"), ("request", '{"id":7}'), ("error", "E1")} <= said
    assert {("scores", "safety 0.5"), ("notes", "late"), ("outcome", "not said")} <= said
    assert ("in all", "5.0 ms, 1 tool call, 0 retrievals, cost not known") in said


def test_notes_and_flags_are_told_apart() -> None:
    """What was done to a request is a note; what was odd about an answer is a flag."""
    lines = told(flags_json=["missing_done", "note: clamped reasoning_effort=xhigh to high"])

    assert Line("flag", "missing_done") in lines
    assert Line("note", "clamped reasoning_effort=xhigh to high") in lines


def test_a_call_on_a_worker_names_it() -> None:
    """Who ran a call is told beside where it went."""
    on_worker = told(worker="gpu-box", base_url="worker://llama")
    direct = told()

    assert any("worker://llama" in line.text and "gpu-box" in line.text for line in on_worker)
    assert not any("worker" in line.text for line in direct)


def test_an_open_turn_says_so() -> None:
    """A turn without an end is told as far as it went."""
    lines = told()

    assert Line("outcome", "open: the turn has not ended") in lines
    assert Line("usage", "not reported") in lines


@pytest.mark.parametrize(
    "value",
    [
        1,
        "text",
        True,
        {"a": 1},
        [1, "b", None, [2]],
        {"choices": 5},
        {"choices": {"a": 1}},
        {"choices": [5]},
        {"choices": [{"message": 5}]},
        {"choices": [{"message": {"content": 5, "refusal": [1], "tool_calls": 5}}]},
        {"choices": [{"message": {"tool_calls": [5, {"function": 5}]}}]},
        [{"role": [1], "content": {"a": 1}}],
    ],
    ids=str,
)
def test_json_of_any_shape_is_told(value: Any) -> None:
    """What an application recorded in a shape of its own is told as it is."""
    names = ("prompt_messages_json", "tools_json", "response_json", "parameters_json")
    lines = told(**dict.fromkeys((*names, "flags_json", "usage_json", "error_json"), value))

    said = {line.label.strip() for line in lines}
    assert {"messages", "tools", "outcome"} <= said
    assert said & {"response", "choice", "content", "refusal", "tool call"}


def test_no_line_can_do_anything_to_a_terminal() -> None:
    """Whatever column it comes from, and none can pass for two lines."""
    lines = told(
        finish_reason="stop\x1b[2J\ud800\n  outcome success",
        provider_id="a\x9bb",
    )

    text = "".join(line.label + line.text for line in lines)
    assert "finish stop\\x1b[2J\\ud800\\x0a  outcome success" in text
    assert text.isprintable()
