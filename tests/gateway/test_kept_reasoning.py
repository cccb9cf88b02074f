"""What models thought: in the client's answer, and in one table where a deployment keeps it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from click.testing import CliRunner

from everyturn import ids
from everyturn.cli.main import main
from everyturn.gateway.auth import new_key
from everyturn.mock.script import ABORT, Script
from everyturn.mock.server import MockProvider
from everyturn.store.export import export_day
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support.gateway import HELLO, Running, gateway_and_mock, running_gateway
from tests.support.sending import accepted, an_item

MARKER = "quietmarkerquietmarker"
SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"
KEEP = '[reasoning]\nstore = "keep"\nkeep_days = 3'


def thought(number: int) -> str:
    """A reasoning text that is unlike any other."""
    return f"I wonder {MARKER}{number:02d} about it"


def whole(message: dict[str, Any]) -> Script:
    """A whole answer with this message."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return Script.whole(body=json.dumps({"id": "c", "choices": [choice]}).encode())


def said(number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Model and message: one for each place where an answer may hold reasoning."""
    text = thought(number)
    yield "m-deepseek", {"reasoning_content": text, "content": "a"}
    yield "m-openrouter", {"reasoning": text, "content": "a"}
    detail = {"type": "reasoning.text", "text": text, "signature": "c2ln"}
    yield "m-openrouter", {"reasoning_details": [detail], "content": "a"}
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
    yield "m-mistral", {"content": [thinking, {"type": "text", "text": "a"}]}
    yield "m-tagged", {"content": f"<think>{text}</think>a"}
    yield "m-drifting", {"reasoning": text, "content": "a"}
    yield "m-carrying", {"reasoning": text, "content": "a"}


MODELS: list[dict[str, Any]] = [
    {"name": "m-deepseek", "preset": "deepseek"},
    {"name": "m-openrouter", "preset": "openrouter"},
    {"name": "m-mistral", "preset": "mistral"},
    {"name": "m-tagged", "preset": "generic-strict", "tags": "split"},
    {"name": "m-drifting", "preset": "openai-chat"},
    {"name": "m-carrying", "preset": "openai-chat", "on_drift": "carry"},
]


def history(number: int) -> list[dict[str, Any]]:
    """A conversation that brings reasoning back, and a tool call that needs it."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": thought(number),
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]


async def fill(running: Running, mock: MockProvider, *, is_streamed: bool) -> list[httpx.Response]:
    """Turns whose answers, histories and errors hold reasoning; what the client saw of each."""
    answers = []
    for number, (model, message) in enumerate(said(0)):
        message = json.loads(json.dumps(message).replace(thought(0), thought(number)))
        script = Script.sse([chunk(**message), FINISH, DONE]) if is_streamed else whole(message)
        mock.add(model, script)
        answers.append(await running.chat(model, stream=is_streamed))
    mock.add("m-deepseek", whole({"content": "b"}))
    body = {"model": "m-deepseek", "messages": history(10), "stream": is_streamed}
    answers.append(await running.client.post("/chat/completions", json=body))
    half = len(thought(11)) // 2
    cut = [chunk(reasoning_content=thought(11)[:half]), chunk(reasoning_content=thought(11)[half:])]
    mock.add("m-deepseek", Script.sse([*cut, ABORT]))
    answers.append(await running.chat("m-deepseek", stream=True))
    echo = json.dumps({"error": {"message": f"cannot go on from: {thought(12)}"}}).encode()
    mock.add("m-deepseek", Script.whole(400, body=echo))
    body = {"model": "m-deepseek", "messages": history(12), "stream": is_streamed}
    answers.append(await running.client.post("/chat/completions", json=body))
    cut = [chunk(reasoning_content=thought(13), content="a"), b"data: {"]
    mock.add("m-deepseek", Script.sse(cut))
    answers.append(await running.chat("m-deepseek", stream=True))
    return answers


async def record(running: Running) -> str:
    """What an application records of calls it made itself, with reasoning in it; the turn's id."""
    turn_id = ids.generate_turn_id()
    message = {"role": "assistant", "reasoning_content": thought(20), "content": "a"}
    tagged = f"<think>{thought(21)}</think>a"
    said = {"choices": [{"message": message}], "thoughts": thought(22)}
    items = [
        an_item("turn_audit", turn_id, assistant_text=tagged),
        an_item("model_calls", turn_id, prompt_messages_json=[message], response_json=said),
        an_item("model_calls", turn_id, error_json={"error": {"reasoning": thought(23)}}),
        an_item("tool_calls", turn_id, request_json=[message], response_json={"said": message}),
        an_item("retrieval_events", turn_id, sources_json=[{"rank": 1, "thinking": thought(24)}]),
        an_item("quality_reviews", turn_id, notes=f"it said {tagged}"),
    ]
    await accepted(running, *items)
    return turn_id


def outputs(data: Path, turn_ids: Iterable[str]) -> str:
    """What the commands print about the record without asking for reasoning; exports it too."""
    list(export_day(data, datetime.now(UTC).date(), data.parent / "export"))
    shown = [["turns"], ["turns", "--json"], ["failures"], ["find", MARKER], ["find", "wonder"]]
    shown += [["show", turn_id, *more] for turn_id in turn_ids for more in ([], ["--json"])]
    env = {"EVERYTURN_DATA": str(data)}
    return "".join(CliRunner().invoke(main, arguments, env=env).output for arguments in shown)


def places(data: Path) -> set[str]:
    """Every column of every table that holds the marker."""
    db = sqlite3.connect(data / "everyturn.db")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    found = set()
    for table in tables:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        for column in columns:
            values = db.execute(f"SELECT CAST({column} AS BLOB) FROM {table}")  # noqa: S608 (ours)
            if any(MARKER.encode() in (value or b"") for (value,) in values):
                found.add(f"{table}.{column}")
    db.close()
    return found


def kept_numbers(data: Path) -> set[int]:
    """Which thoughts rest in the table."""
    db = sqlite3.connect(data / "everyturn.db")
    texts = [text for (text,) in db.execute("SELECT text FROM reasoning_texts")]
    db.close()
    return {number for number in range(20) for text in texts if thought(number) in text}


def in_files(folder: Path) -> list[Path]:
    """The files under a folder that hold the marker."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if MARKER.encode() in path.read_bytes()]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
async def test_reasoning_is_in_its_answer_and_its_table_alone(
    tmp_path: Path, is_kept: bool, is_streamed: bool
) -> None:
    """A marker in reasoning of every carrier, in histories and in errors appears in no file, row,
    log line, metric, reading or command but the client's answer and, where kept, its table."""
    data = tmp_path / "place" / "data"
    async with MockProvider() as mock:
        models = [{**model, "base_url": mock.url} for model in MODELS]
        async with running_gateway(models, data, extra=KEEP if is_kept else "") as running:
            answers = await fill(running, mock, is_streamed=is_streamed)
            turn_ids = [answer.headers["x-everyturn-turn-id"] for answer in answers]
            turn_ids.append(await record(running))
            readings = [
                (await running.client.get(f"/turns/{turn_id}")).text for turn_id in turn_ids
            ]
            root = str(running.client.base_url).removesuffix("/v1/")
            metrics = (await running.client.get(f"{root}/metrics")).text
            told = await asyncio.to_thread(outputs, data, turn_ids)
        log = json.dumps(running.log_lines)

    shown = [MARKER in answer.text for answer in answers]
    drifted, without, split = 5, 7, 8
    assert [at for at, is_shown in enumerate(shown) if not is_shown] == [drifted, without, split]
    assert "protocol_drift" in answers[drifted].text
    for text in (*readings, metrics, told, log):
        assert text
        assert MARKER not in text
    assert places(data) == ({"reasoning_texts_rows.text"} if is_kept else set())
    if is_kept:
        assert kept_numbers(data) == {0, 1, 2, 3, 4, 6, 10, 11, 12, 13}
        db = apsw.Connection(str(data / "everyturn.db"))
        db.pragma("secure_delete", True)
        db.execute("DELETE FROM reasoning_texts_rows")
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.close()
    assert in_files(data.parent) == []


def key_table(name: str, *permissions: str) -> tuple[dict[str, str], str]:
    """The header of a new key, and its table for the configuration."""
    key, sha256 = new_key(name)
    listed = json.dumps(list(permissions))
    table = f'[[keys]]\nname = "{name}"\nsha256 = "{sha256}"\npermissions = {listed}'
    return {"authorization": f"Bearer {key}"}, table


async def test_who_has_the_permission_and_asks_reads_it(tmp_path: Path) -> None:
    """A kept text, secrets removed, is read by its mark's ref; each such read is an access record
    of its own route that names the turn; without the permission it is 403."""
    may, may_table = key_table("auditor", "read", "reasoning")
    cannot, cannot_table = key_table("app", "call", "read")
    extra = "\n".join([KEEP, may_table, cannot_table])
    data = tmp_path / "data"
    async with gateway_and_mock(data, "deepseek", extra=extra) as (running, mock):
        mock.add("m", whole({"reasoning_content": f"with {SECRET} I", "content": "a"}))
        body = {"model": "m", "messages": HELLO}
        answer = await running.client.post("/chat/completions", json=body, headers=cannot)
        path = f"/turns/{answer.headers['x-everyturn-turn-id']}"
        asked = f"{path}?include_reasoning=true"
        read = (await running.client.get(asked, headers=may)).json()
        unasked = (await running.client.get(path, headers=may)).json()
        refused = await running.client.get(asked, headers=cannot)
        odd = [
            await running.client.get(f"{path}?{query}", headers=may)
            for query in ("include_reasoning=yes", "reasoning=true")
        ]
    db = sqlite3.connect(data / "everyturn.db")
    rows = db.execute(
        "SELECT path_template, principal, status_code, turn_id FROM access_events"
    ).fetchall()
    db.close()

    (text,) = read["reasoning_texts"]
    assert text["text"].startswith("with [redacted:openai_key:")
    assert text["text"].endswith("] I")
    message = read["model_calls"][0]["response_json"]["choices"][0]["message"]
    assert message["reasoning_content"]["everyturn_reasoning"]["ref"] == text["reasoning_id"]
    assert text["redactions_json"] == {"openai_key": 1}
    assert text["chars"] == read["model_calls"][0]["reasoning_chars"] == len(f"with {SECRET} I")
    assert "reasoning_texts" not in unasked
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_permitted")
    assert [answer.json()["error"]["code"] for answer in odd] == [
        "invalid_value",
        "unknown_parameter",
    ]
    route = "/v1/turns/{turn_id}?include_reasoning=true"
    assert (route, "auditor", 200, read["turn_id"]) in rows
    assert (route, "app", 403, None) in rows
    assert ("/v1/turns/{turn_id}", "auditor", 200, None) in rows
    assert SECRET.encode() not in (data / "everyturn.db").read_bytes()


async def test_history_is_kept_once_and_read_with_each_turn(tmp_path: Path) -> None:
    """Reasoning that each request of a conversation sends again rests once; every turn reads it."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "deepseek", extra=KEEP) as (running, mock):
        texts = []
        for number in range(3):
            mock.add("m", whole({"content": "b"}))
            messages = [*history(1), {"role": "user", "content": str(number)}]
            body = {"model": "m", "messages": messages}
            answer = await running.client.post("/chat/completions", json=body)
            path = f"/turns/{answer.headers['x-everyturn-turn-id']}?include_reasoning=true"
            found = (await running.client.get(path)).json()
            texts.append([text["text"] for text in found["reasoning_texts"]])

    assert texts == [[thought(1)]] * 3
    db = sqlite3.connect(data / "everyturn.db")
    assert db.execute("SELECT count(*) FROM reasoning_texts").fetchall() == [(1,)]
    db.close()


async def test_a_model_says_for_itself(tmp_path: Path) -> None:
    """`reasoning.store` of a model outweighs `[reasoning]`; the same history counts and is kept."""
    data = tmp_path / "data"
    async with MockProvider() as mock:
        entry = {"preset": "deepseek", "base_url": mock.url, "upstream_model": "plain"}
        models = [{**entry, "name": "m"}]
        models.append({**entry, "name": "kept", "reasoning": {"store": "keep"}})
        async with running_gateway(models, data) as running:
            found = []
            for name in ("m", "kept", "m"):
                body = {"model": name, "messages": history(1)}
                answer = await running.client.post("/chat/completions", json=body)
                path = f"/turns/{answer.headers['x-everyturn-turn-id']}?include_reasoning=true"
                found.append((await running.client.get(path)).json())

    assert [len(turn["reasoning_texts"]) for turn in found] == [0, 1, 0]


async def test_show_tells_kept_reasoning_when_asked(tmp_path: Path) -> None:
    """`show --include-reasoning` prints the text; without it, that there is one."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "deepseek", extra=KEEP) as (running, mock):
        mock.add("m", whole({"reasoning_content": thought(1), "content": "a"}))
        answer = await running.chat("m")
    arguments = ["show", answer.headers["x-everyturn-turn-id"], "--data", str(data)]

    plain = CliRunner().invoke(main, arguments)
    asked = CliRunner().invoke(main, [*arguments, "--include-reasoning"])
    as_json = CliRunner().invoke(main, [*arguments, "--include-reasoning", "--json"])

    assert "kept apart" in plain.output
    assert MARKER not in plain.output
    assert thought(1) in asked.output
    assert json.loads(as_json.output)["reasoning_texts"][0]["text"] == thought(1)
