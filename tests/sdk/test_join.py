"""Work that joins a turn: jobs behind it, services beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import everyturn
from everyturn.errors import InvalidValue
from tests.sdk.conftest import since


def test_a_job_joins_the_turn_of_its_envelope() -> None:
    """What a job records after its turn has the turn's id and trace, and a span of its own."""
    with everyturn.capture() as events:
        with everyturn.turn() as turn:
            message = json.dumps({"task": "index", **turn.envelope()})
        with everyturn.join(json.loads(message)) as job, job.tool("internal", "index"):
            pass

    turn_event, tool = events
    assert (tool["turn_id"], tool["trace_id"]) == (turn.id, turn.trace_id)
    assert tool["parent_span_id"] == job.span_id
    assert job.span_id not in (turn_event["span_id"], tool["span_id"])
    assert job.id == turn.id
    assert job.headers()["x-request-id"] == turn.headers()["x-request-id"]


def test_joining_makes_no_turn_record() -> None:
    """Joined work records its tools and retrievals and leaves the turn's own row alone."""
    with everyturn.capture() as events:
        with everyturn.turn() as turn:
            pass
        with everyturn.join(turn.envelope()["everyturn"]), everyturn.retrieval(query="q"):
            pass

    assert [event["log"] for event in events] == ["turn_audit", "retrieval_events"]


def test_a_traceparent_of_the_same_trace_names_the_parent() -> None:
    """Where the caller's span came along, the job is its child; one of another trace is ignored."""
    with everyturn.capture(), everyturn.turn() as turn:
        envelope, headers = turn.envelope(), turn.headers()

    same = everyturn.join(envelope, traceparent=headers["traceparent"], tracestate="a=1")
    other = everyturn.join(envelope, traceparent=f"00-{'1' * 32}-{'2' * 16}-01")

    assert same.parent_span_id == turn.span_id
    assert same.headers()["tracestate"] == "a=1"
    assert other.parent_span_id is None
    assert other.trace_id == turn.trace_id


def test_flags_say_who_made_the_trace() -> None:
    """A trace made here is sampled and random; one that an envelope names is not called random,
    since nobody said so; one that came with flags keeps them."""
    with everyturn.capture(), everyturn.turn() as turn:
        made = turn.headers()["traceparent"]
    joined = everyturn.join(turn.envelope())
    adopted = everyturn.join(turn.envelope(), traceparent=f"{made[:-2]}02")

    assert made.endswith("-03")
    assert joined.headers()["traceparent"].endswith("-01")
    assert adopted.headers()["traceparent"].endswith("-02")


@pytest.mark.parametrize(
    "envelope",
    [
        None,
        {},
        {"everyturn": None},
        {"everyturn": []},
        {"everyturn": {"turn_id": 5}},
        {"everyturn": {"turn_id": "9"}},
        {"turn_id": "00000000-0000-1000-8000-000000000000"},
    ],
)
def test_an_envelope_that_names_no_turn_lets_the_work_run(envelope: Any) -> None:
    """Without a turn to join, the work runs, nothing is recorded, and both are counted."""
    before = everyturn.counters()
    with (
        everyturn.capture() as events,
        everyturn.join(envelope) as job,
        job.tool("internal", "x") as run,
    ):
        run.request({"a": 1})

    assert events == []
    assert job.id == ""
    assert job.envelope() == {}
    assert "x-everyturn-turn-id" not in job.headers()
    assert since(before) == {"envelope_invalid": 1, "outside_turn": 1}


def test_ids_of_an_envelope_that_are_no_ids_are_made_anew() -> None:
    """A trace id or request id that is malformed is not passed on."""
    turn_id = "7c0f9a52-3b1f-4c58-9a5e-8f3f5d1d2c11"
    bad = {"turn_id": turn_id, "trace_id": "0" * 32, "request_id": "a b"}

    job = everyturn.join({"everyturn": bad})

    assert job.id == turn_id
    assert job.trace_id != "0" * 32
    assert job.line.request_id.startswith("req_")


def test_turns_refuse_inside_of_joined_work() -> None:
    """A turn cannot be opened inside of work that joined another."""
    with everyturn.capture(), everyturn.turn() as turn:
        envelope = turn.envelope()
    with everyturn.join(envelope), pytest.raises(InvalidValue), everyturn.turn():
        pass
