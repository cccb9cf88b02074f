"""What the record holds of turns that went through the gateway."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from everyturn.audit.group import Group
from everyturn.errors import AuditUnavailable
from everyturn.gateway.keys import key_path, redaction_key
from everyturn.mock.script import ABORT, HANG, Script
from everyturn.store.reader import Reader
from everyturn.store.writer import GroupWriter
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.gateway.test_lifecycle import until
from tests.support.gateway import HELLO, Running, gateway_and_mock

SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"


async def recorded(running: Running, answer: Any) -> dict[str, Any]:
    """The turn of an answer, as the gateway gives it."""
    turn_id = answer.headers["x-everyturn-turn-id"]
    found = await running.client.get(f"/turns/{turn_id}")
    assert found.status_code == 200, found.text
    turn: dict[str, Any] = found.json()
    return turn


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_turn_is_rebuilt_from_its_id(tmp_path: Path, is_streamed: bool) -> None:
    """Request, call, answer, usage and access of a turn are there when the answer has ended."""
    async with gateway_and_mock(tmp_path / "data", "deepseek", upstream_model="deepseek") as (
        running,
        mock,
    ):
        answer = await running.chat("m", stream=is_streamed, temperature=0.25, max_tokens=7)
        turn = await recorded(running, answer)
        sent = mock.requests[-1].json()

    (call,) = turn["model_calls"]
    (access,) = turn["access_events"]
    assert turn["turn"]["user_text"] == "hello"
    assert turn["turn"]["outcome"] == "success"
    assert call["prompt_messages_json"] == HELLO
    assert {**call["parameters_json"], "messages": HELLO} == sent
    assert call["stream_state"] == ("complete" if is_streamed else "whole")
    assert (call["temperature"], call["max_tokens"]) == (0.25, 7)
    message = call["response_json"]["choices"][0]["message"]
    assert message["content"] == turn["turn"]["assistant_text"]
    assert message["reasoning_content"]["everyturn_reasoning"]["chars"] == call["reasoning_chars"]
    assert call["total_tokens"] == call["usage_json"]["total_tokens"]
    assert access["status_code"] == 200
    assert access["response_size_bytes"] == len(answer.content)
    assert access["path_template"] == "/v1/chat/completions"
    assert access["client_type"] == "httpx"
    assert {turn["turn"]["trace_id"], call["trace_id"], access["trace_id"]} == {
        answer.headers["traceparent"].split("-")[1]
    }


async def test_no_reasoning_and_no_secret_rests(tmp_path: Path) -> None:
    """Neither reasoning nor a key in a prompt, an answer or an error stands in any file or log."""
    thought = "a-private-thought-of-the-model"
    wire = [chunk(reasoning_content=thought), chunk(content=f"use {SECRET[:20]}")]
    wire += [chunk(content=SECRET[20:]), FINISH, DONE]
    history = [
        {"role": "user", "content": f"my key is {SECRET}"},
        {"role": "assistant", "content": "ok", "reasoning_content": thought},
        {"role": "user", "content": "go on"},
    ]
    async with gateway_and_mock(tmp_path / "data", "deepseek") as (running, mock):
        mock.add("m", Script.sse(wire))
        body = {"model": "m", "messages": history, "stream": True}
        answer = await running.client.post("/chat/completions", json=body)
        body_with_error = json.dumps({"error": {"message": f"bad key {SECRET}"}}).encode()
        mock.add("m", Script.whole(400, body=body_with_error))
        failed = await running.chat("m")
        log = json.dumps(running.log_lines)

    assert thought in answer.text
    assert SECRET in failed.text
    files = [path for path in (tmp_path / "data").iterdir() if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert thought.encode() not in data, path
        assert SECRET.encode() not in data, path
        assert SECRET[20:].encode() not in data, path
    assert thought not in log
    assert SECRET not in log


ENDINGS: list[tuple[list[Any], str, str, str]] = [
    ([chunk(content="a"), ABORT], "partial", "provider_error", "cut"),
    ([ABORT], "failure", "provider_error", "cut"),
    ([chunk(content="a"), FINISH], "success", "none", "missing_done"),
    ([chunk(refusal="no"), FINISH, DONE], "refused", "none", "complete"),
    (
        [chunk(content="a"), b'data: {"error":{"message":"x"}}\n\n'],
        "partial",
        "provider_error",
        "error",
    ),
    ([chunk(reasoning_details=[{"text": "x"}]), FINISH, DONE], "failure", "adapter_error", "error"),
]


@pytest.mark.parametrize(("wire", "outcome", "failure_type", "state"), ENDINGS)
async def test_each_ending_has_its_outcome(
    tmp_path: Path, wire: list[Any], outcome: str, failure_type: str, state: str
) -> None:
    """However a stream ends, the turn and the call are closed with what happened."""
    async with gateway_and_mock(tmp_path / "data", "deepseek") as (running, mock):
        mock.add("m", Script.sse(wire))
        answer = await running.chat("m", stream=True)
        turn = await recorded(running, answer)

    assert turn["turn"]["outcome"] == outcome
    assert turn["turn"]["failure_type"] == failure_type
    assert turn["model_calls"][0]["stream_state"] == state


async def test_a_refused_request_is_a_turn_without_a_call(tmp_path: Path) -> None:
    """A request that is at fault leaves its turn, with what was asked where that could be read."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        refused = await running.chat("m", colour="blue")
        unknown = await running.chat("nobody")
        turns = [await recorded(running, answer) for answer in (refused, unknown)]

    assert [t["turn"]["failure_type"] for t in turns] == ["format_error", "routing"]
    assert [t["turn"]["error_code"] for t in turns] == ["unknown_parameter", "model_not_found"]
    assert [t["turn"]["user_text"] for t in turns] == ["hello", "hello"]
    assert [t["model_calls"] for t in turns] == [[], []]
    assert turns[0]["access_events"][0]["status_code"] == 400


async def test_a_client_that_leaves_is_an_abandoned_turn(tmp_path: Path) -> None:
    """What arrived until the client left is in the record, and the call is cancelled."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([chunk(content="so far"), HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            await anext(answer.aiter_bytes())
        await until(lambda: running.gateway.app.chat.open_turns == 0)
        turn = await recorded(running, answer)

    assert turn["turn"]["outcome"] == "abandoned"
    assert turn["turn"]["assistant_text"] == "so far"
    assert turn["model_calls"][0]["stream_state"] == "cancelled"
    assert turn["access_events"][0]["status_code"] == 200


async def test_only_an_id_that_was_made_here_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a client names, in the header or in the body, may be stored already."""
    opened: dict[str, bool] = {}
    append = GroupWriter.append

    async def listen(self: GroupWriter, group: Group) -> None:
        opened.setdefault(str(group.records[0].turn_id), group.is_turn_new)
        await append(self, group)

    monkeypatch.setattr(GroupWriter, "append", listen)
    named = ["7d5d2c80-6b1f-4c8e-9d5e-2f4d1c1b0a98", "7d5d2c80-6b1f-4c8e-9d5e-2f4d1c1b0a97"]
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        made = (await running.chat("m")).headers["x-everyturn-turn-id"]
        body = {"model": "m", "messages": HELLO}
        headers = {"x-everyturn-turn-id": named[0]}
        await running.client.post("/chat/completions", json=body, headers=headers)
        await running.chat("m", everyturn={"turn_id": named[1]})

    assert opened == {made: True, named[0]: False, named[1]: False}


async def test_a_turn_with_several_calls(tmp_path: Path) -> None:
    """Calls that name the same turn join it: counts add up, words are the last call's."""
    wanted = "7d5d2c80-6b1f-4c8e-9d5e-2f4d1c1b0a99"
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        for text in ("first", "second"):
            reply = f'{{"choices":[{{"message":{{"content":"{text}"}},"finish_reason":"stop"}}]}}'
            mock.add("m", Script.whole(body=reply.encode()))
            answer = await running.client.post(
                "/chat/completions",
                json={"model": "m", "messages": HELLO},
                headers={"x-everyturn-turn-id": wanted},
            )
        turn = await recorded(running, answer)

    assert turn["turn"]["model_call_count"] == 2
    assert turn["turn"]["assistant_text"] == "second"
    assert len(turn["model_calls"]) == len(turn["access_events"]) == 2


@pytest.mark.parametrize("wrong", [{"model": "nobody"}, {"temperature": "hot"}])
async def test_a_refused_request_takes_nothing_from_its_turn(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    """A turn keeps text and outcome of its call; only an access row tells of the refusal."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        answer = await running.chat("m")
        before = await recorded(running, answer)
        refused = await running.client.post(
            "/chat/completions",
            json={"model": "m", "messages": HELLO, **wrong},
            headers={"x-everyturn-turn-id": answer.headers["x-everyturn-turn-id"]},
        )
        after = await recorded(running, answer)

    assert 400 <= refused.status_code < 500
    assert before["turn"]["outcome"] == "success"
    assert after["turn"] == before["turn"]
    codes = [(one["status_code"], one["error_code"]) for one in after["access_events"]]
    assert codes == [(200, None), (refused.status_code, refused.json()["error"]["code"])]


async def test_a_turn_is_joined_after_a_restart_and_by_parallel_calls(tmp_path: Path) -> None:
    """A turn that rests in the store is joined from there, by calls at the same time too."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        first = await running.chat("m")
        turn_id = first.headers["x-everyturn-turn-id"]
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        body = {"model": "m", "messages": HELLO}
        headers = {"x-everyturn-turn-id": turn_id}
        answers = await asyncio.gather(
            *(running.client.post("/chat/completions", json=body, headers=headers) for _ in "abc")
        )
        turn = await recorded(running, answers[0])

    assert [answer.status_code for answer in answers] == [200] * 3
    assert turn["turn"]["model_call_count"] == len(turn["model_calls"]) == 4


async def test_every_request_leaves_an_access_row_but_probes(tmp_path: Path) -> None:
    """Lists, refusals and unknown paths are access rows by their route; probes are counted."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        root = str(running.client.base_url).removesuffix("/v1/")
        for path in ("/v1/models", "/secret?token=abc", "/healthz", "/readyz", "/metrics"):
            await running.client.get(root + path)
        await until(lambda: running.gateway.app.probes == 3)
    db = sqlite3.connect(tmp_path / "data" / "everyturn.db")
    rows = db.execute("SELECT path_template, status_code, turn_id FROM access_events").fetchall()
    db.close()

    assert sorted(rows) == [("/v1/models", 200, None), ("unknown", 404, None)]


async def test_rows_exist_before_the_answer(tmp_path: Path) -> None:
    """Turn and call are in the store, open, while the provider still answers."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([chunk(content="a"), HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            await anext(answer.aiter_bytes())
            with Reader(tmp_path / "data") as reader:
                turn_id = answer.headers["x-everyturn-turn-id"]
                found = reader.turn(turn_id)

    assert found is not None
    assert found["turn"]["outcome"] is None
    assert found["model_calls"][0]["stream_state"] is None


async def test_without_recording_nothing_is_written(tmp_path: Path) -> None:
    """`[audit] enabled = false` serves the same bytes and makes no folder."""
    extra = "[audit]\nenabled = false"
    async with gateway_and_mock(tmp_path / "on", upstream_model="deepseek", preset="deepseek") as (
        running,
        _,
    ):
        kept = await running.chat("m", stream=True)
    async with gateway_and_mock(
        tmp_path / "off", "deepseek", extra=extra, upstream_model="deepseek"
    ) as (running, _):
        unkept = await running.chat("m", stream=True)

    assert kept.content == unkept.content
    assert not (tmp_path / "off").exists()


def test_the_key_rests_beside_the_folder(tmp_path: Path) -> None:
    """The redaction key is made once, private, outside the data folder; a wide one is refused."""
    data = tmp_path / "data"
    key = redaction_key(data)

    assert redaction_key(data) == key
    assert key_path(data).parent == tmp_path
    assert stat.S_IMODE(key_path(data).stat().st_mode) == 0o600
    key_path(data).chmod(0o644)
    with pytest.raises(AuditUnavailable, match="read by others"):
        redaction_key(data)
    key_path(data).chmod(0o600)
    key_path(data).write_bytes(b"short")
    with pytest.raises(AuditUnavailable, match="damaged"):
        redaction_key(data)


async def test_an_empty_list_of_tools_is_not_no_list(tmp_path: Path) -> None:
    """`"tools": []` as sent stands in the record; absence is null."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        empty = await recorded(running, await running.chat("m", tools=[]))
        absent = await recorded(running, await running.chat("m"))

    assert empty["model_calls"][0]["tools_json"] == []
    assert absent["model_calls"][0]["tools_json"] is None
