"""Rows as spans and back, and spans of others, without a store or a gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit.otel.fields import NOT_TAKEN
from everyturn.audit.otel.records import Account, Plan
from everyturn.audit.otel.spans import request_of
from everyturn.audit.schema import LOGS, Column, Log
from everyturn.wire.reader import read_provider, write
from tests.support.otlp import a_line, a_span
from tests.support.store_records import a_turn_id

TURN_ID = a_turn_id(7)
WORDS = {
    "tool_family": "rag",
    "status": "partial",
    "outcome": "failure",
    "turn_id": TURN_ID,
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "span_id": "00f067aa0ba902b7",
    "parent_span_id": "00f067aa0ba902b1",
    "timestamp": 1_795_000_000_000_001,
    "created_at": 1_795_000_000_000_002,
}


def filled(column: Column) -> Any:
    """A value of a column that no other column has."""
    if column.name in WORDS:
        return WORDS[column.name]
    length = sum(column.name.encode())
    values = {
        "text": f"{column.name} \u2028 x",
        "json": f'{{"of":"{column.name}","n":[0.10,null]}}',
        "integer": length,
        "real": length / 7,
        "boolean": True,
    }
    return values[column.kind]


def a_row(log: Log, **fields: Any) -> dict[str, Any]:
    """A row of a log with every column filled, but for these."""
    return {**{column.name: filled(column) for column in log.columns}, **fields}


def back(*requests: Any) -> tuple[list[dict[str, Any]], Account]:
    """The records of requests, each written and read again."""
    read = [read_provider(write(request)).value for request in requests]
    plan, account = Plan(), Account()
    for request in read:
        plan.look(request)
    return [record for request in read for record in plan.records(request, account)], account


def as_rows(records: list[dict[str, Any]], log: str) -> list[dict[str, Any]]:
    """Records of a log with their JSON as text, as rows have it."""
    return [
        {
            name: write(value).decode() if name.endswith("_json") else value
            for name, value in record.items()
            if name != "log"
        }
        for record in records
        if record["log"] == log
    ]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_every_field_comes_back(log: Log) -> None:
    """A row of a turn, with every column filled, is read back as it was but for bookkeeping."""
    turn = a_row(LOGS[0], span_id="00f067aa0ba902b9")
    row = turn if log.is_turn else a_row(log)
    found: dict[str, Any] = {"turn": turn} if log.is_turn else {"turn": turn, log.name: [row]}
    records, account = back(request_of(found, version="1"))

    assert as_rows(records, log.name) == [
        {name: value for name, value in row.items() if name not in NOT_TAKEN}
    ]
    assert {what for what, _ in account.left_out} <= {"attribute"}
    assert {name.rpartition(".")[2] for _, name in account.left_out} <= NOT_TAKEN


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_row_with_little_comes_back_with_no_more(log: Log) -> None:
    """A row that has only what it must have gains no field on its way."""
    nothing = {column.name: None for column in log.columns if column.is_nullable}
    row = a_row(log, **nothing)
    found: dict[str, Any] = {"turn": row} if log.is_turn else {"turn": None, log.name: [row]}
    records, _ = back(request_of(found, version="1"))

    (read,) = as_rows(records, log.name)
    assert {name for name, value in read.items() if row[name] != value} == set()
    assert len(records) == 1


def test_the_request_of_a_turn_shares_its_span() -> None:
    """The access event with the turn's span id is told in the turn's span and comes back whole."""
    turn = a_row(LOGS[0])
    access = a_row(LOGS[2], timestamp=1_795_000_000_000_000, parent_span_id="00f067aa0ba902ff")
    request = request_of({"turn": turn, "access_events": [access]}, version="1")
    records, _ = back(request)

    assert request is not None
    assert len(request["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 1
    assert as_rows(records, "access_events") == [
        {name: value for name, value in access.items() if name not in NOT_TAKEN}
    ]


def test_ids_come_from_the_span() -> None:
    """The same spans give the same records, in whatever order and requests they stand."""
    spans = [a_span(2, 1, **{"openinference.span.kind": "LLM"}), a_span(1, k="v")]
    together, _ = back(json.loads(a_line(*spans)))
    apart, _ = back(*(json.loads(a_line(span)) for span in reversed(spans)))

    assert together == apart[::-1]
    assert together[0]["turn_id"] == together[1]["turn_id"]


def test_what_has_no_form_is_counted() -> None:
    """A value that its field cannot hold is left out by name, and no other is."""
    span = a_span(
        1, **{"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "many", "odd.3.x": 1}
    )
    (call, _), account = back(json.loads(a_line(span)))

    assert "prompt_tokens" not in call
    assert account.left_out == {
        ("attribute", "gen_ai.usage.input_tokens"): 1,
        ("attribute", "odd.N.x"): 1,
        ("resource attribute", "telemetry.sdk.name"): 1,
    }


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["key", "value", "stringValue", "intValue", "arrayValue", "kvlistValue", "values"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions",
        "llm.input_messages.0.message", "llm.input_messages.0.message.contents",
        "llm.output_messages.0.message.tool_calls.0", "llm.tools.0.tool", "input.value",
        "retrieval.documents.0.document", "gen_ai.retrieval.documents", "everyturn.turn_id",
        "everyturn.record", "output.value", "llm.tools.0", "session.id", "everyturn.made",
    ]
)  # fmt: skip
MEMBERS = st.sampled_from(
    ["role", "parts", "type", "content", "message", "messages", "tools", "choices", "tool_call"]
)
CONTENTS = st.recursive(
    st.none() | st.integers() | st.sampled_from(["text", "reasoning", "tool_call", "user"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(["chat", "execute_tool", "retrieval", "invoke_agent"]),
    said=st.dictionaries(KEYS, CONTENTS.map(json.dumps) | st.text(max_size=4), max_size=5),
    member=st.sampled_from(["traceId", "attributes", "events", "status", "startTimeUnixNano"]),
    odd=TREES,
)
def test_no_span_stops_an_import(kind: str, said: dict[str, Any], member: str, odd: Any) -> None:
    """Whatever stands in a span, it becomes records or is counted."""
    span = a_span(1, **{**said, "gen_ai.operation.name": kind})
    records, account = back(json.loads(a_line(span)), json.loads(a_line({**span, member: odd})))

    assert account.spans + account.left_out["span", "broken: ids, time or attributes"] == 2
    assert records
    assert back(odd)[0] == []
