"""Whole days of a store as OpenTelemetry spans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from everyturn.audit.group import Group
from everyturn.store.spans import export_spans
from everyturn.store.sqlite import SqliteStore
from tests.store.test_export import DAY, DAY_US, START_US, fill
from tests.support.otlp import ANSWER, MESSAGES, TOOLS, TRACE, fill_turn, spans_of, told
from tests.support.store_records import a_review, a_tool_call, a_turn, an_access, closed_turn


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store that stays open, as a gateway's does."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def requests_of(store: SqliteStore, out: Path, day: date = DAY) -> list[dict[str, Any]]:
    """The lines of a day's file."""
    file = export_spans(store.folder, day, out, version="1")
    lines = [json.loads(line) for line in file.path.read_bytes().splitlines()]
    assert file.path.name == f"spans-{day.isoformat()}.jsonl"
    assert len(lines) == file.rows
    return lines


def test_a_turn_is_one_line_of_a_tree_of_spans(store: SqliteStore, tmp_path: Path) -> None:
    """The turn's span is that of its request; call, tool run and search are below it."""
    turn = fill_turn(store, START_US)

    (request,) = requests_of(store, tmp_path / "out")

    (resource,) = request["resourceSpans"]
    assert told(resource["resource"]["attributes"]) == {
        "service.name": "shop",
        "service.instance.id": "i1",
        "deployment.environment.name": "test",
    }
    root, *children = spans_of(request)
    assert {span["traceId"] for span in (root, *children)} == {TRACE}
    assert (root["spanId"], "parentSpanId" in root) == (turn.span_id, False)
    assert {child["parentSpanId"] for child in children} == {turn.span_id}
    assert root["startTimeUnixNano"] == str(START_US * 1000)
    assert int(root["endTimeUnixNano"]) - START_US * 1000 == 13_000_000
    assert (root["kind"], root["status"]) == (2, {"code": 1})
    kinds = [span["attributes"]["openinference.span.kind"] for span in (root, *children)]
    assert kinds == ["CHAIN", "LLM", "TOOL", "RETRIEVER"]
    assert root["attributes"]["everyturn.turn_id"] == turn.turn_id
    assert root["attributes"]["http.response.status_code"] == 200
    assert root["attributes"]["input.value"] == "where is order 7?"


def test_both_conventions_name_a_model_call(store: SqliteStore, tmp_path: Path) -> None:
    """Model, tokens, messages and tools stand under the names of GenAI and of OpenInference."""
    fill_turn(store, START_US)
    (request,) = requests_of(store, tmp_path / "out")
    said = spans_of(request)[1]["attributes"]

    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "llm.provider": "mistralai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2",
        "llm.model_name": "m-2",
        "gen_ai.usage.input_tokens": 11,
        "llm.token_count.prompt": 11,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "llm.token_count.completion_details.reasoning": 2,
        "gen_ai.response.finish_reasons": {"values": [{"stringValue": "stop"}]},
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.request.seed": 3,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.conversation.id": "c1",
        "server.address": "models.test",
        "server.port": 9000,
        "everyturn.latency_ms": 12.345678901,
        "llm.tools.0.tool.name": "get_order",
    }
    assert {key: said[key] for key in expected} == expected
    assert json.loads(said["input.value"]) == MESSAGES
    assert json.loads(said["output.value"]) == ANSWER
    assert json.loads(said["llm.tools.0.tool.json_schema"]) == TOOLS[0]
    assert json.loads(said["gen_ai.input.messages"])[1] == {
        "role": "user",
        "parts": [{"type": "text", "content": "where is order 7?"}],
    }
    (message,) = json.loads(said["gen_ai.output.messages"])
    assert [part["type"] for part in message["parts"]] == ["text", "tool_call"]
    assert message["finish_reason"] == "stop"


def test_tools_searches_and_reviews(store: SqliteStore, tmp_path: Path) -> None:
    """A failed run has its error; documents have id, score and text; each score is an event."""
    fill_turn(store, START_US)
    (request,) = requests_of(store, tmp_path / "out")
    root, _, tool, search = spans_of(request)

    assert tool["status"] == {"code": 2}
    assert tool["attributes"]["error.type"] == "slow"
    assert tool["attributes"]["gen_ai.tool.call.id"] == tool["attributes"]["tool.id"] == "c1"
    assert tool["attributes"]["gen_ai.tool.call.arguments"] == '{"id":7}'
    assert search["attributes"]["retrieval.documents.0.document.id"] == "d1"
    assert search["attributes"]["retrieval.documents.0.document.content"] == "seven"
    assert json.loads(search["attributes"]["gen_ai.retrieval.documents"]) == [
        {"id": "d1", "score": 0.5}
    ]
    events = [told(event["attributes"]) for event in root["events"]]
    assert {event["name"] for event in root["events"]} == {"gen_ai.evaluation.result"}
    assert [
        (one["gen_ai.evaluation.name"], one["gen_ai.evaluation.score.value"]) for one in events
    ] == [("correctness", 0.5), ("safety", 1.0)]
    assert events[0]["gen_ai.evaluation.explanation"] == "wrong order"


def test_nothing_of_a_day_is_left_out(store: SqliteStore, tmp_path: Path) -> None:
    """Requests without a turn, and rows whose turn has no row, stand alone; late rows go along."""
    turn = closed_turn(a_turn(timestamp=START_US))
    unknown = a_turn()
    late = a_tool_call(turn, timestamp=START_US + DAY_US)
    alone = [
        an_access(timestamp=START_US, status_code=401),
        a_tool_call(unknown, timestamp=START_US),
        a_review(unknown, created_at=START_US, score_safety=0.0),
    ]
    store.append([Group((turn, late, *alone))])

    lines = [spans_of(request) for request in requests_of(store, tmp_path / "out")]
    next_day = requests_of(store, tmp_path / "out", DAY + timedelta(days=1))

    assert [[span["name"] for span in spans] for spans in lines] == [
        ["invoke_workflow", "execute_tool add"],
        ["request"],
        ["execute_tool add"],
        ["review"],
    ]
    assert next_day == []
    for spans in lines:
        assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    root, child = lines[0]
    assert (child["traceId"], child["parentSpanId"]) == (root["traceId"], root["spanId"])
    assert child["attributes"]["everyturn.made"] == "trace_id,span_id,parent_span_id"


def test_the_same_bytes_again_however_it_is_read(store: SqliteStore, tmp_path: Path) -> None:
    """A file that is written again, a row a read, is the same, and open turns are in it."""
    fill(store, days=2)
    store.append([Group((a_turn(timestamp=START_US + 5, user_text="a\ud800b"),))])
    first = export_spans(store.folder, DAY, tmp_path / "a", version="1")
    again = export_spans(store.folder, DAY, tmp_path / "b", version="1", rows_a_read=1)

    assert first.rows == again.rows == 2
    assert first.path.read_bytes() == again.path.read_bytes()
    assert "a\ufffdb" in first.path.read_bytes().decode("utf-8")
    assert [path.name for path in (tmp_path / "a").iterdir()] == [first.path.name]
