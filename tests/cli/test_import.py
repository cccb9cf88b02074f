"""`everyturn import` into a real gateway, of what it exported and of what others write."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everyturn.cli.main import main
from everyturn.gateway.auth import new_key
from everyturn.mock.script import Script
from everyturn.store.document import document
from everyturn.store.reader import Reader
from everyturn.store.spans import export_spans
from everyturn.store.sqlite import SqliteStore
from everyturn.wire.reader import write
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.gateway.test_auth import entry
from tests.store.test_export import DAY, START_US
from tests.support.gateway import HELLO, Running, gateway_and_mock
from tests.support.otlp import a_line, a_span, fill_turn
from tests.support.sending import accepted, an_item, the_turn
from tests.support.store_records import bytes_of

LOGS = (
    "turn", "model_calls", "tool_calls", "retrieval_events", "quality_reviews", "access_events",
)  # fmt: skip
THOUGHT = "zebra-canary-thought"


async def imported(*arguments: str, running: Running | None = None, key: str = "") -> Result:
    """Run the command beside the gateway, which answers meanwhile."""
    where = [] if running is None else ["--gateway", running.url]
    environment = {"EVERYTURN_URL": "", "EVERYTURN_API_KEY": key, "EVERYTURN_DATA": ""}
    return await asyncio.to_thread(
        CliRunner().invoke, main, ["import", *arguments, *where], env=environment
    )


def differences(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """The fields in which the rows of two records of a turn differ, as `LOG.FIELD`."""
    found = set()
    for log, others in other.items():
        rows = one.get(log)
        if not isinstance(rows, list | dict):
            continue
        pairs = [(rows, others)] if log == "turn" else zip(rows, others, strict=True)
        found |= {
            f"{log}.{field}" for mine, its in pairs for field in mine if mine[field] != its[field]
        }
    return found


async def test_a_day_goes_out_and_comes_in(tmp_path: Path) -> None:
    """Every field of every log is the same but for the bookkeeping; again, nothing changes."""
    store = SqliteStore(tmp_path / "a")
    turn = fill_turn(store, START_US)
    store.close()
    file = export_spans(store.folder, DAY, tmp_path, version="1").path
    with Reader(store.folder) as reader:
        before = json.loads(write(document(reader.turn(turn.turn_id))))
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        first = await imported(str(file), running=running)
        after = await the_turn(running, turn.turn_id)
        again = await imported(str(file), running=running)
        unchanged = await the_turn(running, turn.turn_id)

    assert (first.exit_code, again.exit_code) == (0, 0), first.output
    assert first.stdout.splitlines() == [
        "access_events 1", "model_calls 1", "quality_reviews 1", "retrieval_events 1",
        "tool_calls 1", "turn_audit 1",
    ]  # fmt: skip
    assert first.stderr.splitlines() == [
        "4 spans, 6 records, 6 accepted.",
        "left out: attribute everyturn.access.principal: 1",
        "left out: attribute everyturn.principal: 1",
        "left out: attribute everyturn.transport: 1",
    ]
    # What an import does not bring along, the gateway that takes the rows says of its own.
    assert differences(before, after) == {
        *(f"{log}.redaction_applied" for log in LOGS),
        *(f"{log}.redaction_rules_version" for log in LOGS),
        "turn.principal",
        "turn.revision",
        "turn.sources_by_field_json",
        "access_events.principal",
        "model_calls.revision",
        "model_calls.transport",
    }
    assert after == unchanged


async def test_a_turn_of_a_gateway_goes_to_another(tmp_path: Path) -> None:
    """What a gateway recorded of a streamed answer is read back elsewhere, without reasoning."""
    keep = '[reasoning]\nstore = "keep"'
    async with gateway_and_mock(tmp_path / "a", "deepseek", extra=keep) as (running, mock):
        stream = [chunk(reasoning_content=THOUGHT), chunk(content="an answer"), FINISH, DONE]
        mock.add("m", Script.sse(stream))
        answer = await running.chat("m", stream=True, temperature=0.5, messages=HELLO)
        turn_id = answer.headers["x-everyturn-turn-id"]
        await accepted(running, an_item("tool_calls", turn_id, request_json={"id": 7}))
        before = await the_turn(running, turn_id)
    assert THOUGHT in answer.text
    shown = CliRunner().invoke(main, ["show", "--otlp", turn_id, "--data", str(tmp_path / "a")])
    file = tmp_path / "turn.jsonl"
    file.write_bytes(shown.stdout_bytes)
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        result = await imported(str(file), running=running)
        after = await the_turn(running, turn_id)

    assert THOUGHT not in shown.stdout
    assert result.exit_code == 0, result.output
    assert "left out: attribute everyturn.transport: 1\n" in result.stderr
    assert differences(before, after) == {
        "turn.revision",
        "turn.sources_by_field_json",
        "model_calls.revision",
        "model_calls.transport",
    }
    assert after["model_calls"][0]["transport"] == "external"
    assert after["model_calls"][0]["reasoning_chars"] == len(THOUGHT)


OPENINFERENCE = {
    "llm.model_name": "small",
    "llm.provider": "openai",
    "llm.token_count.prompt": 7,
    "llm.invocation_parameters": '{"model":"s","temperature":0.1,"stream":true}',
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "hello?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
    "llm.output_messages.0.message.contents.0.message_content.text": THOUGHT,
    "llm.output_messages.0.message.contents.1.message_content.type": "text",
    "llm.output_messages.0.message.contents.1.message_content.text": "hi",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look_up",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
    "llm.token_count.prompt_details.audio": 3,
}
GENAI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.system": "openai",
    "gen_ai.request.model": "big",
    "gen_ai.request.top_p": 0.5,
    "gen_ai.usage.output_tokens": 4,
    "gen_ai.response.finish_reasons": ["length"],
    "gen_ai.response.id": "r1",
    "gen_ai.conversation.id": "talk",
    "gen_ai.system_instructions": '[{"type":"text","content":"be brief"}]',
    "gen_ai.tool.definitions": '[{"type":"function","name":"look_up"}]',
    "server.address": "models.test",
    "gen_ai.input.messages": json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": "why?"}]}]
    ),
    "gen_ai.output.messages": json.dumps(
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "content": THOUGHT},
                    {"type": "text", "content": "because"},
                ],
                "finish_reason": "length",
            }
        ]
    ),
}


async def test_spans_of_others(tmp_path: Path) -> None:
    """A trace in OpenInference's names is a turn with its call, tool run and search."""
    chain = a_span(1, **{"openinference.span.kind": "CHAIN", "input.value": "q", "session.id": "s"})
    tool = a_span(3, 1, code=2, **{"openinference.span.kind": "TOOL", "tool.name": "look_up"})
    raised = {"key": "exception.type", "value": {"stringValue": "KeyError"}}
    tool["events"] = [{"name": "exception", "timeUnixNano": "1", "attributes": [raised]}]
    documents = {
        "retrieval.documents.0.document.id": "d",
        "retrieval.documents.0.document.score": 1.5,
    }
    spans = [
        a_span(2, 1, **{"openinference.span.kind": "LLM", **OPENINFERENCE}),
        tool,
        a_span(4, 1, **{"openinference.span.kind": "RETRIEVER", "input.value": "q", **documents}),
        a_span(5, 1, **{"openinference.span.kind": "EMBEDDING"}),
        chain,
    ]
    file = tmp_path / "spans.jsonl"
    file.write_text(a_line(*spans[:2]) + "\n" + a_line(*spans[2:]), "utf-8")
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        result = await imported(str(file), running=running)
        found = await a_turn_of(running, tmp_path / "b")

    assert result.exit_code == 0, result.output
    assert (found["turn"]["user_text"], found["turn"]["chat_id"]) == ("q", "s")
    assert (found["turn"]["outcome"], found["turn"]["service"]) == ("success", "svc")
    assert found["turn"]["duration_ms"] == 2.0
    (call,) = found["model_calls"]
    assert (call["requested_model"], call["served_model_name"]) == ("s", "small")
    assert (call["temperature"], call["stream_state"]) == (0.1, "complete")
    assert call["prompt_tokens"] == 7
    assert call["prompt_messages_json"] == [{"role": "user", "content": "hello?"}]
    message = call["response_json"]["choices"][0]["message"]
    assert message["content"] == "hi"
    assert message["tool_calls"][0]["function"] == {"name": "look_up", "arguments": "{}"}
    assert call["reasoning_chars"] == len(THOUGHT)
    (tool,) = found["tool_calls"]
    assert (tool["status"], tool["error_code"]) == ("error", "KeyError")
    assert found["retrieval_events"][0]["sources_json"] == [
        {"rank": 1, "score": 1.5, "source": {"id": "d", "score": 1.5}}
    ]
    assert result.stderr.splitlines()[1:] == [
        f"left out: reasoning: {len(THOUGHT)} characters",
        "left out: attribute llm.token_count.prompt_details.audio: 1",
        "left out: event exception: 1",
        "left out: resource attribute telemetry.sdk.name: 2",
        "left out: span EMBEDDING: 1",
    ]


async def test_a_single_call_is_a_turn(tmp_path: Path) -> None:
    """A trace that is one call in GenAI's names becomes a turn with its question and answer."""
    file = tmp_path / "spans.jsonl"
    file.write_text(a_line(a_span(1, **GENAI)), "utf-8")
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        result = await imported(str(file), running=running)
        found = await a_turn_of(running, tmp_path / "b")

    assert result.exit_code == 0, result.output
    assert (found["turn"]["user_text"], found["turn"]["assistant_text"]) == ("why?", "because")
    (call,) = found["model_calls"]
    assert (call["provider_id"], call["requested_model"]) == ("openai", "big")
    assert (call["finish_reason"], call["completion_tokens"]) == ("length", 4)
    assert call["parameters_json"] == {"top_p": 0.5}
    assert call["response_json"]["id"] == "r1"
    assert call["tools_json"] == [{"type": "function", "name": "look_up"}]
    assert [one["role"] for one in call["prompt_messages_json"]] == ["system", "user"]
    assert found["turn"]["chat_id"] == "talk"
    assert "left out: attribute server.address: 1\n" in result.stderr
    assert call["reasoning_chars"] == len(THOUGHT)
    assert THOUGHT not in json.dumps(found)


async def test_reasoning_of_others_stays_out(tmp_path: Path) -> None:
    """Wherever a span has reasoning, none of it is in a file of the gateway afterwards."""
    answer = {"role": "assistant", "content": "hi", "reasoning_content": THOUGHT}
    body = {"messages": [*HELLO, answer, *HELLO], "model": "m"}
    whole = json.dumps({"choices": [{"index": 0, "message": answer}]})
    chain = {"openinference.span.kind": "CHAIN", "input.value": json.dumps(body)}
    call = {"openinference.span.kind": "LLM", "input.value": json.dumps(body)}
    spans = [
        a_span(1, **chain, **{"output.value": whole}),
        a_span(2, 1, **call, **{"output.value": whole}),
        a_span(3, 1, **{**GENAI, "gen_ai.input.messages": GENAI["gen_ai.output.messages"]}),
        a_span(4, 1, **{**call, **OPENINFERENCE, "output.value": whole}),
    ]
    file = tmp_path / "spans.jsonl"
    file.write_text(a_line(*spans), "utf-8")
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        result = await imported(str(file), running=running)
        found = await a_turn_of(running, tmp_path / "b")

    assert result.exit_code == 0, result.output
    assert len(found["model_calls"]) == 3
    assert THOUGHT not in result.output
    assert THOUGHT.encode() not in bytes_of(tmp_path / "b")


async def a_turn_of(running: Running, data: Path) -> dict[str, Any]:
    """The only turn of a record."""
    with Reader(data) as reader:
        (turn,) = reader.turns()
    return await the_turn(running, turn["turn_id"])


async def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Broken lines, logs and spans are counted by name, the rest is taken, and the status is 1."""
    broken = {**a_span(2, **GENAI), "traceId": "xyz"}
    logs = json.dumps({"resourceLogs": []})
    file = tmp_path / "spans.jsonl"
    file.write_text("\n".join(["{", logs, "", a_line(broken, a_span(1, **GENAI))]), "utf-8")
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        result = await imported(str(file), running=running)
        await a_turn_of(running, tmp_path / "b")

    assert result.exit_code == 1
    assert "1 span, 2 records, 2 accepted." in result.stderr
    assert "left out: line 1: " in result.stderr
    assert "left out: line no spans but `resourceLogs`: 1" in result.stderr
    assert "left out: span broken: ids, time or attributes: 1" in result.stderr


async def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    """Records are counted, and no gateway is asked for."""
    file = tmp_path / "spans.jsonl"
    file.write_text(a_line(a_span(1, **GENAI)), "utf-8")
    result = await imported(str(file), "--dry-run")

    assert (result.exit_code, result.stdout) == (0, "model_calls 1\nturn_audit 1\n")
    assert "1 span, 2 records, none sent." in result.stderr


async def test_refused_records_are_told(tmp_path: Path) -> None:
    """A record that the gateway refuses is named by its fault; the others are stored."""
    store = SqliteStore(tmp_path / "a")
    turn = fill_turn(store, START_US)
    store.close()
    file = export_spans(store.folder, DAY, tmp_path, version="1").path
    other = file.read_text("utf-8").replace("be brief", "be long")
    (tmp_path / "other.jsonl").write_text(other, "utf-8")
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        await imported(str(file), running=running)
        result = await imported(str(tmp_path / "other.jsonl"), running=running)
        found = await the_turn(running, turn.turn_id)

    assert result.exit_code == 1
    assert "6 records, 5 accepted" in result.stderr
    assert "refused: invalid_value `model_call_id`: 1 record\n" in result.stderr
    assert found["model_calls"][0]["prompt_messages_json"][0]["content"] == "be brief"


async def test_the_key_of_the_environment(tmp_path: Path) -> None:
    """With keys, the one of the environment is sent; without it the command ends with 1."""
    key, sha256 = new_key("app")
    file = tmp_path / "spans.jsonl"
    file.write_text(a_line(a_span(1, **GENAI)), "utf-8")
    extra = entry("app", sha256, "record", "read")
    async with gateway_and_mock(tmp_path / "b", extra=extra) as (running, _):
        refused = await imported(str(file), running=running)
        taken = await imported(str(file), running=running, key=key)

    assert (refused.exit_code, taken.exit_code) == (1, 0), taken.output
    assert "status 401" in refused.stderr
    assert "permission `record`" in refused.stderr


@pytest.mark.parametrize("gateway", ["ftp://host", "http://elsewhere.test"])
async def test_an_address_that_cannot_be(tmp_path: Path, gateway: str) -> None:
    """An address of no gateway, or one that would send texts in clear, is bad use."""
    file = tmp_path / "spans.jsonl"
    file.write_text("", "utf-8")
    result = await imported(str(file), "--gateway", gateway)

    assert result.exit_code == 2
    assert "The gateway's address or key" in result.stderr


async def test_a_gateway_that_is_away(tmp_path: Path) -> None:
    """Nobody at the address: status 1, and what to do."""
    async with gateway_and_mock(tmp_path / "b") as (running, _):
        url = running.url
    file = tmp_path / "spans.jsonl"
    file.write_text(a_line(a_span(1, **GENAI)), "utf-8")
    result = await imported(str(file), "--gateway", url)

    assert result.exit_code == 1
    assert "does not take records (ConnectionRefusedError). 0 are there" in result.stderr
