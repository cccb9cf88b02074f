"""OTLP/JSON as tests look at it and make it, and a store that holds a row of every log."""

from __future__ import annotations

import json
from typing import Any

from everyturn.audit.group import Group
from everyturn.audit.otel.values import any_value
from everyturn.audit.records import TurnAudit
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    a_call,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    an_access,
    closed_call,
    closed_turn,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
MESSAGES = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "where is order 7?"},
]
ANSWER = {
    "id": "chatcmpl-1",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "on its way",
                "reasoning_content": {
                    "everyturn_reasoning": {"chars": 9, "carrier": "reasoning_content"}
                },
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "get_order", "arguments": '{"id":7}'},
                    }
                ],
            },
            "finish_reason": "stop",
        }
    ],
}
TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {}}}]


def fill_turn(store: SqliteStore, at: int) -> TurnAudit:
    """One turn at `at` microseconds with a row of every log, most of their fields filled."""
    ids = {"trace_id": TRACE, "parent_span_id": "00f067aa0ba902b7"}
    turn = a_turn(
        timestamp=at, **{**ids, "parent_span_id": None}, span_id="00f067aa0ba902b7",
        chat_id="c1", project_id="shop", principal="app", plugin="1c",
        service="shop", environment="test", request_id="req-1",
        user_text="where is order 7?", prompt_id="p", prompt_version="3",
        attributes_json='{"base_id":"b"}',
    )  # fmt: skip
    call = a_call(
        turn, **ids, timestamp=at + 1_000, span_id="00f067aa0ba902c1", provider_id="mistral",
        provider_type="openai_chat", base_url="http://models.test:9000/v1", requested_model="m",
        served_model_name="m-2", model_registry_id="m", stream=False, temperature=0.5,
        max_tokens=64, transport="direct", prompt_messages_json=json.dumps(MESSAGES),
        tools_json=json.dumps(TOOLS), parameters_json='{"seed":3,"top_p":0.50,"stop":"x"}',
    )  # fmt: skip
    closing = closed_call(
        call, response_json=json.dumps(ANSWER), prompt_tokens=11, completion_tokens=5,
        total_tokens=16, reasoning_tokens=2, cache_read_tokens=0, usage_json='{"total_tokens":16}',
        cost_estimate=0.25, latency_ms=12.345678901, time_to_first_token_ms=3.3,
        finish_reason="stop", status_code=200, upstream_status=200, reasoning_chars=9,
        reasoning_carrier="reasoning_content", flags_json='["a"]',
    )  # fmt: skip
    tool = a_tool_call(
        turn, **ids, timestamp=at + 2_000, span_id="00f067aa0ba902c2", tool_family="mcp",
        tool_name="get_order", target_service="orders", provider_call_id="c1",
        request_json='{"id":7}', response_json="null", status="timeout",
        error_code="slow", duration_ms=1.5, retry_count=0,
    )  # fmt: skip
    search = a_retrieval(
        turn, **ids, timestamp=at + 3_000, span_id="00f067aa0ba902c3", profile="docs", top_k=4,
        index_version="v1", query_text="order 7", context_chars=9, retrieval_latency_ms=2.25,
        sources_json='[{"rank":1,"score":0.5,"source":{"id":"d1","text":"seven"},"used":true}]',
    )  # fmt: skip
    review = a_review(
        turn, created_at=at + 4_000, reviewer="ann", score_correctness=0.5, score_safety=1.0,
        label_primary_issue="rag_miss", notes="wrong order",
    )  # fmt: skip
    access = an_access(
        turn, trace_id=TRACE, span_id=turn.span_id, timestamp=at, service="shop", instance="i1",
        environment="test", method="POST", path_template="/v1/chat/completions", status_code=200,
        duration_ms=13.5, principal="app", request_size_bytes=100, client_type="other",
    )  # fmt: skip
    store.append([Group((turn, call))])
    done = closed_turn(
        turn, assistant_text="on its way", outcome="success", duration_ms=13.0,
        model_call_count=1, tool_call_count=1, retrieval_count=1, cost_estimate=0.25,
    )  # fmt: skip
    store.append([Group((closing, tool, search, review, access, done))])
    return done


def spans_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The spans of a request, each with its attributes as one dict of plain values."""
    return [
        {**span, "attributes": told(span["attributes"])}
        for resource in request["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def told(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as one dict; integers, which stand as texts, as integers."""
    found = {}
    for one in attributes:
        ((form, value),) = one["value"].items()
        found[one["key"]] = int(value) if form == "intValue" else value
    return found


def a_span(number: int, parent: int | None = None, *, code: int = 0, **said: Any) -> dict[str, Any]:
    """A span as another program writes it, two milliseconds long; later numbers start earlier."""
    start = 1_795_000_000_000_000_000 - number * 1_000
    span = {
        "traceId": TRACE.upper(),
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": start + 2_000_000,
        "attributes": [{"key": key, "value": any_value(value)} for key, value in said.items()],
        "status": {"code": code} if code else {},
    }
    return span if parent is None else {**span, "parentSpanId": f"{parent:016x}"}


def a_line(*spans: dict[str, Any]) -> str:
    """A request with these spans, of a service with a name."""
    said = {"service.name": "svc", "telemetry.sdk.name": "other"}
    resource = [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
    group = {"resource": {"attributes": resource}, "scopeSpans": [{"spans": list(spans)}]}
    return json.dumps({"resourceSpans": [group]})
