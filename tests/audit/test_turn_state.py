"""One row of a turn, from the gateway and from the application."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.audit.facts import CallClosing
from everyturn.audit.records import TurnAudit
from everyturn.audit.turn_state import Tally, TurnState, interrupted, words_of
from everyturn.errors import AuditUnavailable, UpstreamError
from tests.support.recording import TURN_ID, Turn, a_reply
from tests.support.store_records import START, a_turn

WORDS = {"chat_id": "c1", "user_text": "asked", "outcome": "success", "duration_ms": 9.0}
OPENED = TurnAudit(turn_id=TURN_ID, timestamp=START, principal="app")


def sources(row: TurnAudit | None) -> dict[str, str]:
    """Where each field of a row came from."""
    assert row is not None
    told: dict[str, str] = json.loads(row.sources_by_field_json or "{}")
    return told


def a_closing(**facts: Any) -> CallClosing:
    """A call that answered `hello`."""
    return CallClosing(**{"stream_state": "whole", "reply": a_reply("hello"), **facts})


@pytest.mark.parametrize("is_new", [True, False])
def test_only_the_group_that_opens_a_new_turn_says_so(is_new: bool) -> None:
    """Nothing is stored under its id; whatever comes after may find what came before."""
    turn = Turn(is_new=is_new)

    groups = [turn.open(), turn.close(reply=a_reply("a")), turn.open("call_2")]

    assert [group.is_turn_new for group in groups] == [is_new, False, False]


@pytest.mark.parametrize("said", ["before", "in flight", "after"])
def test_the_application_wins_whichever_comes_first(said: str) -> None:
    """Whether its words come before the call, while it runs or after it, the row is the same."""
    state = TurnState()
    turn = Turn(state=state)
    if said == "before":
        state.say(WORDS, OPENED)
    turn.open()
    if said == "in flight":
        state.say(WORDS, OPENED)
    turn.recorder.close_turn(duration_ms=5.0, call=a_closing())
    if said == "after":
        state.say(WORDS, OPENED)

    row = state.row
    assert row is not None
    assert (row.chat_id, row.user_text, row.outcome, row.duration_ms) == (
        "c1",
        "asked",
        "success",
        9,
    )
    assert (row.assistant_text, row.model_call_count, row.origin) == ("hello", 1, "gateway")
    assert row.trace_id is not None
    told = sources(row)
    assert {name for name, source in told.items() if source == "application"} == set(WORDS)
    assert told["assistant_text"] == told["model_call_count"] == told["trace_id"] == "gateway"
    assert "error_code" not in told


def test_a_heuristic_never_overwrites_what_the_application_said() -> None:
    """Further calls of the turn, failed ones too, change what nobody said and nothing else."""
    state = TurnState()
    state.say({**WORDS, "tool_call_count": 4}, OPENED)
    for closing in (a_closing(), a_closing(reply=None, failure=UpstreamError("500"))):
        turn = Turn(state=state)
        turn.open()
        turn.recorder.close_turn(duration_ms=5.0, call=closing)

    row = state.row
    assert row is not None
    assert (row.outcome, row.failure_type, row.error_code) == ("success", "none", None)
    assert (row.tool_call_count, row.model_call_count, row.duration_ms) == (4, 2, 9.0)


def test_a_failure_of_which_the_application_knows_no_more_is_the_gateways() -> None:
    """`unknown` says nothing against a failure that the gateway knows; another word does."""
    rows = []
    for word in ("unknown", "rag_miss"):
        state = TurnState()
        turn = Turn(state=state)
        turn.open()
        turn.recorder.close_turn(
            duration_ms=5.0, call=a_closing(reply=None, failure=UpstreamError("500"))
        )
        state.say({"outcome": "failure", "failure_type": word, "error_code": "ApiError"}, OPENED)
        rows.append(state.row)

    assert [row and row.failure_type for row in rows] == ["provider_error", "rag_miss"]
    assert [sources(row)["failure_type"] for row in rows] == ["gateway", "application"]
    assert [row and row.error_code for row in rows] == ["ApiError", "ApiError"]


def test_the_same_words_again_are_no_change() -> None:
    """What came twice gives the row that stands; a correction gives the next revision."""
    state = TurnState()
    first = state.say(WORDS, OPENED)
    again = state.say(WORDS, OPENED)
    corrected = state.say({"outcome": "failure"}, OPENED)

    assert again is first
    assert (first.revision, corrected.revision) == (1, 2)
    assert (corrected.outcome, corrected.chat_id) == ("failure", "c1")


def test_a_turn_that_was_let_go_goes_on_as_it_was() -> None:
    """A state made again from its row knows the application's words, and counts on."""
    state = TurnState()
    turn = Turn(state=state)
    turn.open()
    turn.recorder.close_turn(duration_ms=5.0, call=a_closing())
    state.say(WORDS, OPENED)

    again = TurnState(state.row, Tally(calls=1, cost=None, external_calls=2, tools=3))
    turn = Turn(state=again)
    turn.open()
    turn.recorder.close_turn(duration_ms=5.0, call=a_closing())

    row = again.row
    assert row is not None
    assert again.words == WORDS == words_of(row)
    assert (row.model_call_count, row.tool_call_count, row.user_text) == (4, 3, "asked")
    assert row.cost_estimate is None


def test_counts_follow_what_is_recorded() -> None:
    """Tool runs, retrievals and calls elsewhere count; the application's own numbers win."""
    state = TurnState(a_turn(outcome="success", tool_call_count=1), Tally(calls=1, cost=0.5))
    state.count(Tally(calls=1, external_calls=1, external_cost=0.25, tools=2, retrievals=1))

    counted = state.recount()
    same = state.recount()
    said = state.say({"tool_call_count": 1, "cost_estimate": 2.0}, OPENED)

    assert counted is not None
    assert (counted.tool_call_count, counted.retrieval_count) == (2, 1)
    assert (counted.model_call_count, counted.cost_estimate) == (2, 0.75)
    assert (counted.revision, counted.sources_by_field_json) == (2, None)
    assert same is counted
    assert (said.tool_call_count, said.cost_estimate, said.model_call_count) == (1, 2.0, 2)
    assert TurnState().recount() is None


def test_a_persons_review_stands_where_the_application_says_nothing_of_it() -> None:
    """The turn is reviewed then, and tells where it has that from; a later call keeps it."""
    state, told = TurnState(a_turn(outcome="success")), TurnState(a_turn())
    told.say({"human_review_status": "queued"}, OPENED)
    for each in (state, told):
        each.count(Tally(human_reviews=1))

    reviewed, queued = state.recount(), told.recount()

    assert reviewed is not None
    assert queued is not None
    assert (reviewed.human_review_status, queued.human_review_status) == ("reviewed", "queued")
    sources = json.loads(reviewed.sources_by_field_json or "")
    assert (sources["human_review_status"], sources["outcome"]) == ("review", "gateway")
    assert words_of(reviewed) == {}
    assert TurnState(reviewed).recount() == reviewed


def test_a_turn_belongs_to_who_came_first() -> None:
    """The first to claim a turn has it; a stored turn is its row's principal's."""
    state, stored = TurnState(), TurnState(a_turn(principal="a"))

    assert [state.claim(name) for name in ("a", "b", "a")] == [True, False, True]
    assert [stored.claim(name) for name in (None, "b", "a")] == [False, False, True]


def test_marks_are_counted_where_two_sources_fill_a_row() -> None:
    """`redactions_json` tells of the texts that stand in the row, not of those they replaced."""
    state = TurnState(a_turn(user_text="[redacted:a:01234567]", redactions_json='{"a":1}'))
    row = state.say(
        {"user_text": "[redacted:b:01234567] [redacted:b:01234567]", "chat_id": "[redacted:email]"},
        OPENED,
    )

    assert json.loads(row.redactions_json) == {"b": 2, "email": 1}


def test_an_interruption_does_not_overwrite_words() -> None:
    """A turn that was open at a crash ends as interrupted, but for what the application said."""
    state = TurnState(a_turn(principal="app"))
    said = state.say({"outcome": "success", "duration_ms": 4.0}, OPENED)
    unsaid = TurnState(a_turn()).say({"chat_id": "c"}, OPENED)

    ended = [interrupted(row, Tally(calls=1)) for row in (said, unsaid)]

    assert [(row.outcome, row.error_code) for row in ended] == [
        ("success", None),
        ("failure", "gateway_interrupted"),
    ]
    assert [row.model_call_count for row in ended] == [1, 1]
    assert (ended[0].revision, ended[1].chat_id) == (said.revision + 1, "c")


def test_what_could_not_be_stored_is_taken_back() -> None:
    """Row and sums are as before, but for what others added meanwhile."""
    state = TurnState(a_turn(), Tally(calls=1, cost=0.5))
    before = state.mark()
    state.calls, state.cost, state.tool_calls = 2, 0.75, 3
    state.row = a_turn(revision=2)
    after = state.mark()
    alone = TurnState(before.row, Tally(calls=1, cost=0.5))
    alone.row, alone.calls = after.row, after.calls
    alone.cost, alone.tool_calls = after.cost, after.tool_calls

    alone.take_back(before, after)
    others = state.row = a_turn(revision=3)
    state.calls, state.cost, state.tool_calls = 5, 1.75, 4
    state.take_back(before, after)

    assert alone.row is before.row
    assert (alone.calls, alone.cost, alone.tool_calls) == (1, 0.5, 0)
    assert (state.row, state.calls, state.cost, state.tool_calls) == (others, 4, 1.5, 1)


def test_a_call_is_counted_once_however_often_its_opening_failed() -> None:
    """A call that could not be opened counts when it is closed; the next is another one."""
    turn = Turn()
    for number in (1, 2):
        turn.open(f"call_{number}")
        turn.recorder.not_stored()
        turn.recorder.close_call(CallClosing(stream_state="error", failure=UpstreamError("x")))
    turn.open("call_3")
    turn.keep(turn.recorder.close_turn(duration_ms=1.0, call=CallClosing(stream_state="whole")))

    assert turn.turn.model_call_count == 3


def test_a_call_that_was_never_made_leaves_its_turn_what_it_has() -> None:
    """Where a later call could not be opened, the turn counts it and keeps outcome and text."""
    turn = Turn()
    turn.open("call_1")
    reply = a_reply("said")
    turn.keep(
        turn.recorder.close_turn(
            duration_ms=1.0, call=CallClosing(stream_state="whole", reply=reply)
        )
    )
    turn.open("call_2")
    turn.recorder.not_stored()
    refusal = CallClosing(stream_state="error", failure=AuditUnavailable("x"))
    turn.keep(turn.recorder.close_turn(duration_ms=1.0, call=refusal))

    ended = turn.turn
    assert (ended.outcome, ended.assistant_text, ended.revision) == ("success", "said", 3)
    assert ended.model_call_count == 2
