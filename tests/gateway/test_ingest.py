"""`POST /v1/records`: what comes from applications, and how it joins the gateway's own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from everyturn import ids
from everyturn.audit.records import AccessEvent
from everyturn.gateway.auth import new_key
from everyturn.mock.script import HANG, Script
from everyturn.store.reader import Reader
from everyturn.store.sqlite import SqliteStore
from tests.gateway.test_answers import chunk
from tests.gateway.test_auth import entry
from tests.gateway.test_lifecycle import until
from tests.gateway.test_metrics import scrape
from tests.gateway.test_store_failure import locked
from tests.support.gateway import HELLO, gateway_and_mock
from tests.support.sending import START, accepted, an_item, send, the_turn
from tests.support.store_records import bytes_of

SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"
ROW_FIELDS = {
    "revision",
    "schema_version",
    "redaction_applied",
    "redaction_rules_version",
    "redactions_json",
}


async def test_every_log_is_taken_and_read_back(tmp_path: Path) -> None:
    """One request with a record of each log is one turn, with the values that were sent."""
    turn_id = ids.generate_turn_id()
    items = [
        an_item("access_events", turn_id, method="POST", path_template="/orders", status_code=200),
        an_item("turn_audit", turn_id, chat_id="c1", user_text="q", outcome="success"),
        an_item("model_calls", turn_id, requested_model="other", cost_estimate=0.5),
        an_item("tool_calls", turn_id, request_json={"id": 7}, response_json=[1.50, None]),
        an_item("retrieval_events", turn_id, query_text="q", sources_json=[{"rank": 1}]),
        an_item("quality_reviews", turn_id, score_safety=0.5, notes="fine"),
    ]
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        await accepted(running, *items)
        found = await the_turn(running, turn_id)

    for item in items:
        log = item["log"]
        rows = [found["turn"]] if log == "turn_audit" else found[log]
        assert len(rows) == 1
        sent = {name: value for name, value in item.items() if name != "log"}
        for time in {"timestamp", "created_at"} & sent.keys():
            assert rows[0][time].startswith("2026-11-1")
            del sent[time]
        assert {name: rows[0][name] for name in sent} == sent
    turn = found["turn"]
    counts = (turn["model_call_count"], turn["tool_call_count"], turn["retrieval_count"])
    assert counts == (1, 1, 1)
    assert turn["cost_estimate"] == 0.5
    assert found["model_calls"][0]["transport"] == "external"


async def test_items_are_independent(tmp_path: Path) -> None:
    """Faults are named by place, id and parameter; all else of the request is stored."""
    turn_id = ids.generate_turn_id()
    good = [an_item("tool_calls", turn_id) for _ in range(3)]
    bad_word = an_item("tool_calls", turn_id, status="odd")
    unknown = an_item("retrieval_events", turn_id, colour="red")
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        answer = await send(running, good[0], bad_word, good[1], unknown, 7, good[2])
        found = await running.client.get(f"/turns/{turn_id}")
        metrics = await scrape(running)
        log = running.log_lines

    assert answer.status_code == 200
    told = answer.json()
    assert told["accepted"] == 3
    assert [(one["index"], one["id"], one["code"], one["param"]) for one in told["refused"]] == [
        (1, bad_word["tool_call_id"], "invalid_value", "status"),
        (3, unknown["retrieval_id"], "unknown_parameter", "colour"),
        (4, None, "invalid_value", "log"),
    ]
    assert all(set(one) == {"index", "id", "code", "message", "param"} for one in told["refused"])
    assert "odd" not in answer.text
    stored = [row["tool_call_id"] for row in found.json()["tool_calls"]]
    assert metrics['everyturn_records_total{log="tool_calls",result="accepted"}'] == 3
    assert metrics['everyturn_records_total{log="unknown",result="refused"}'] == 1
    assert metrics['everyturn_tool_calls_total{status="ok"}'] == 3
    (line,) = [line for line in log if line["event"] == "records.refused"]
    assert (line["count"], line["error_code"]) == (3, "invalid_value,unknown_parameter")
    assert stored == [item["tool_call_id"] for item in good]


async def test_the_same_again_is_accepted_and_changes_nothing(tmp_path: Path) -> None:
    """Records may be sent twice, in one request too; other content under an id is refused."""
    turn_id = ids.generate_turn_id()
    items = [an_item(log, turn_id) for log in ("turn_audit", "tool_calls", "quality_reviews")]
    other = {**items[1], "error_code": "another"}
    stranger = {**items[1], "turn_id": ids.generate_turn_id()}
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        await accepted(running, *items, *items)
        first = await the_turn(running, turn_id)
        await accepted(running, *items)
        answer = await send(running, items[2], other, an_item("tool_calls", turn_id), stranger)
        second = await the_turn(running, turn_id)

    told = answer.json()
    assert told["accepted"] == 2
    assert [(one["index"], one["code"], one["param"]) for one in told["refused"]] == [
        (1, "invalid_value", "tool_call_id"),
        (3, "invalid_value", "tool_call_id"),
    ]
    assert second["tool_calls"][0] == first["tool_calls"][0]
    assert second["turn"] | {"tool_call_count": 1, "revision": 1} == first["turn"]
    assert (second["turn"]["tool_call_count"], len(second["tool_calls"])) == (2, 2)


async def test_a_long_text_again_is_no_change_after_a_restart(tmp_path: Path) -> None:
    """What the store cut is not taken for other words when its whole comes again."""
    turn_id = ids.generate_turn_id()
    long = an_item("turn_audit", turn_id, user_text="é" * (1 << 20), assistant_text="short")
    for _ in range(3):
        async with gateway_and_mock(tmp_path / "data") as (running, _):
            await accepted(running, long)
            turn = (await the_turn(running, turn_id))["turn"]

    assert turn["revision"] == 1
    assert "[cut:2097152 bytes:sha256 " in turn["user_text"]


@pytest.mark.parametrize(
    "body, status, code, param",
    [
        (b"{", 400, "invalid_json", None),
        (b"[]", 400, "invalid_json", None),
        (b'{"records":[{"log":"a","log":"b"}]}', 400, "invalid_json", "log"),
        (b'{"records":[{"log":"\\ud800"}]}', 400, "invalid_json", "records[0].log"),
        (b"{}", 400, "missing_parameter", "records"),
        (b'{"records":{}}', 400, "invalid_value", "records"),
        (b'{"records":[]}', 400, "invalid_value", "records"),
        (b'{"records":[' + b"1," * 1000 + b"1]}", 400, "invalid_value", "records"),
        (b'{"records":[1],"more":1}', 400, "unknown_parameter", "more"),
        (b'{"records":["' + b"x" * 2048 + b'"]}', 413, "request_too_large", None),
    ],
)
async def test_a_request_that_is_none(
    tmp_path: Path, body: bytes, status: int, code: str, param: str | None
) -> None:
    """What is not the contract's form is refused whole, with a code and a path."""
    extra = "[limits]\nrequest_bytes_max = 2050"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, _):
        json_type = {"content-type": "application/json"}
        answer = await running.client.post("/records", content=body, headers=json_type)
        plain = await running.client.post(
            "/records", content=b"{}", headers={"content-type": "text/plain"}
        )

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["param"] == param
    assert plain.json()["error"]["param"] == "content-type"


async def test_permissions(tmp_path: Path) -> None:
    """`record` sends everything, `review` reviews alone; a turn is its first principal's."""
    names = ("app", "other", "judge", "caller")
    keys = {name: new_key(name) for name in names}
    allowed = {"app": ("record", "call"), "other": ("record",), "judge": ("review",)}
    extra = "\n".join(entry(name, keys[name][1], *allowed.get(name, ("call",))) for name in names)
    turn_id = ids.generate_turn_id()
    turn = an_item("turn_audit", turn_id, chat_id="c1")
    async with gateway_and_mock(tmp_path / "data", extra=extra, upstream_model="plain") as (
        running,
        _,
    ):

        async def sent(name: str, *items: Any) -> dict[str, Any]:
            answer = await send(running, *items, key=keys[name][0])
            told: dict[str, Any] = answer.json()
            return told

        first = await sent("other", an_item("tool_calls", turn_id))
        owned = await sent("app", turn)
        amended = await sent("other", {**turn, "chat_id": "c2"}, an_item("tool_calls", turn_id))
        judged = await sent(
            "judge", an_item("quality_reviews", turn_id), an_item("tool_calls", turn_id)
        )
        unable = await sent("caller", turn)
        joined = await running.client.post(
            "/chat/completions",
            json={"model": "m", "messages": HELLO},
            headers={"authorization": f"Bearer {keys['app'][0]}", "x-everyturn-turn-id": turn_id},
        )

    with Reader(tmp_path / "data") as reader:
        found = reader.turn(turn_id)
    assert found is not None
    assert [first["accepted"], owned["accepted"]] == [1, 1]
    assert [(one["code"], one["param"]) for one in amended["refused"]] == [
        ("not_permitted", "turn_id")
    ]
    assert amended["accepted"] == 1
    assert [(one["code"], one["param"]) for one in judged["refused"]] == [("not_permitted", "log")]
    assert judged["accepted"] == 1
    assert unable["error"]["code"] == "not_permitted"
    assert joined.status_code == 200
    assert (found["turn"]["principal"], found["turn"]["chat_id"]) == ("app", "c1")
    assert (len(found["tool_calls"]), len(found["quality_reviews"])) == (2, 1)


WORDS = {
    "chat_id": "c1",
    "user_text": "as the application has it",
    "outcome": "partial",
    "duration_ms": 77.0,
    "trace_id": "a" * 32,
    "error_code": "MyError",
}


@pytest.mark.parametrize("when", ["before", "in flight", "after"])
async def test_one_row_of_a_turn_whichever_comes_first(tmp_path: Path, when: str) -> None:
    """The application's record and the gateway's turn merge, before, during and after the call."""
    turn_id = ids.generate_turn_id()
    said = an_item("turn_audit", turn_id, **WORDS)
    path = tmp_path / "data"
    async with gateway_and_mock(path, "deepseek") as (running, mock):
        mock.add("m", Script.sse([chunk(content="hello"), HANG]))
        if when == "before":
            await accepted(running, said)
        headers = {"x-everyturn-turn-id": turn_id}
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream(
            "POST", "/chat/completions", json=body, headers=headers
        ) as answer:
            await anext(answer.aiter_bytes())
            if when == "in flight":
                await accepted(running, said)
                midway = (await the_turn(running, turn_id))["turn"]
                assert {name: midway[name] for name in WORDS} == WORDS
        await until(lambda: running.gateway.app.chat.open_turns == 0)
        if when == "after":
            await accepted(running, said)
        found = await the_turn(running, turn_id)
        await accepted(running, said)
        again = await the_turn(running, turn_id)

    turn = found["turn"]
    assert {name: turn[name] for name in WORDS} == WORDS
    assert (turn["assistant_text"], turn["model_call_count"], turn["origin"]) == (
        "hello",
        1,
        "gateway",
    )
    sources = turn["sources_by_field_json"]
    assert {name for name, source in sources.items() if source == "application"} == {
        *WORDS,
        "timestamp",
    }
    assert (sources["assistant_text"], sources["request_id"]) == ("gateway", "gateway")
    assert again["turn"] == turn


async def test_a_bare_turn_under_way_is_joined_by_what_is_said_of_it(tmp_path: Path) -> None:
    """A turn whose id the gateway made takes the application's words while it streams."""
    async with gateway_and_mock(tmp_path / "data", "deepseek") as (running, mock):
        mock.add("m", Script.sse([chunk(content="hello"), HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            turn_id = answer.headers["x-everyturn-turn-id"]
            await anext(answer.aiter_bytes())
            await accepted(running, an_item("turn_audit", turn_id, outcome="success"))
        await until(lambda: running.gateway.app.chat.open_turns == 0)
        found = await the_turn(running, turn_id)

    assert found["turn"]["outcome"] == "success"
    assert found["model_calls"][0]["stream_state"] == "cancelled"


async def test_what_is_not_said_stays_the_gateways(tmp_path: Path) -> None:
    """A record without an outcome keeps the one that the gateway found, also over a restart."""
    path = tmp_path / "data"
    async with gateway_and_mock(path, upstream_model="plain") as (running, _):
        answer = await running.chat("m")
        turn_id = answer.headers["x-everyturn-turn-id"]
        alone = ids.generate_turn_id()
    async with gateway_and_mock(path, upstream_model="plain") as (running, _):
        await accepted(
            running,
            an_item("turn_audit", turn_id, chat_id="c1", duration_ms=5.0),
            an_item("turn_audit", alone, chat_id="c2"),
        )
    async with gateway_and_mock(path, upstream_model="plain") as (running, _):
        found = (await the_turn(running, turn_id))["turn"]
        unsaid = (await the_turn(running, alone))["turn"]
        joined = await running.client.post(
            "/chat/completions",
            json={"model": "m", "messages": HELLO},
            headers={"x-everyturn-turn-id": turn_id},
        )
        later = (await the_turn(running, turn_id))["turn"]

    with Reader(path) as reader:
        open_turns = reader.turns(outcome="open")
    assert joined.status_code == 200
    assert (found["outcome"], found["chat_id"], found["model_call_count"]) == ("success", "c1", 1)
    assert found["sources_by_field_json"]["outcome"] == "gateway"
    assert (unsaid["outcome"], unsaid["error_code"], unsaid["chat_id"]) == (None, None, "c2")
    assert open_turns == []
    assert (later["chat_id"], later["duration_ms"], later["model_call_count"]) == ("c1", 5.0, 2)


async def test_counts_follow_records_that_come_apart(tmp_path: Path) -> None:
    """Tool runs, retrievals and calls elsewhere count in the turn of the gateway, once each."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        answer = await running.chat("m")
        turn_id = answer.headers["x-everyturn-turn-id"]
        items = [
            *(an_item("tool_calls", turn_id) for _ in range(3)),
            an_item("retrieval_events", turn_id),
            an_item("model_calls", turn_id),
        ]
        await accepted(running, *items)
        await accepted(running, *items)
        counted = (await the_turn(running, turn_id))["turn"]
        await accepted(running, an_item("turn_audit", turn_id, tool_call_count=1))
        said = (await the_turn(running, turn_id))["turn"]
        nobody = ids.generate_turn_id()
        await accepted(running, an_item("tool_calls", nobody))
        unknown = await the_turn(running, nobody)

    names = ("tool_call_count", "retrieval_count", "model_call_count")
    assert [counted[name] for name in names] == [3, 1, 2]
    assert counted["sources_by_field_json"] is None
    assert [said[name] for name in names] == [1, 1, 2]
    assert unknown["turn"] is None


@pytest.mark.parametrize("source, status", [("human", "reviewed"), ("llm-judge", "none")])
async def test_a_persons_review_shows_on_its_turn(tmp_path: Path, source: str, status: str) -> None:
    """Once, and through a restart; what no person wrote changes nothing."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        turn_id = (await running.chat("m")).headers["x-everyturn-turn-id"]
        review = an_item("quality_reviews", turn_id, review_source=source)
        await accepted(running, review)
        await accepted(running, review)
        turn = (await the_turn(running, turn_id))["turn"]
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        again = (await the_turn(running, turn_id))["turn"]

    assert turn["human_review_status"] == status
    assert turn["outcome"] == "success"
    assert turn["revision"] == (3 if source == "human" else 2)
    assert again == turn


async def test_no_secret_and_no_reasoning_rests(tmp_path: Path) -> None:
    """What applications send is redacted as everything is, in every log and every field."""
    turn_id = ids.generate_turn_id()
    text, thought = f"my key is {SECRET}", "a-private-thought"
    carrier = {"reasoning_content": thought}
    items = [
        an_item("turn_audit", turn_id, user_text=text, assistant_text=text, chat_id=SECRET),
        an_item("tool_calls", turn_id, request_json={"a": text}, error_code=text),
        an_item("retrieval_events", turn_id, query_text=text, sources_json=[text]),
        an_item("quality_reviews", turn_id, notes=text, reviewer=text),
        an_item("access_events", turn_id, path_template=f"/{SECRET}", service=text),
        an_item(
            "model_calls",
            turn_id,
            prompt_messages_json=[{"role": "user", "content": text}],
            response_json={"choices": [{"message": {"reasoning": thought}}]},
        ),
        an_item(
            "model_calls",
            turn_id,
            error_json={"error": {"reasoning": thought, "message": json.dumps(carrier)}},
            drift_json=[{"path": "x", "text": f"<think>{thought}</think>"}, carrier],
        ),
        an_item("tool_calls", turn_id, response_json=json.dumps({"rows": [carrier]})),
        an_item(
            "tool_calls",
            turn_id,
            response_json={"content": [{"type": "text", "text": json.dumps(carrier)}]},
        ),
    ]
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        await accepted(running, *items)
        refused = await send(running, an_item("tool_calls", tool_call_id=SECRET))
        log = json.dumps(running.log_lines)
        turn = (await the_turn(running, turn_id))["turn"]
        held = bytes_of(tmp_path / "data")

    assert refused.json()["refused"][0]["param"] == "tool_call_id"
    assert b"FAKEfake" not in held
    assert b"a-private-thought" not in held
    assert "FAKEfake" not in log
    assert turn["redactions_json"] == {"openai_key": 3}


async def test_a_store_that_cannot_be_written_takes_nothing(tmp_path: Path) -> None:
    """503 for the whole request while rows cannot be written; sent again, all is there once."""
    turn_id = ids.generate_turn_id()
    items = [an_item("turn_audit", turn_id, chat_id="c1"), an_item("tool_calls", turn_id)]
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        with locked(tmp_path / "data"):
            refused = [await send(running, *items), await send(running, items[0])]
        await until(lambda: running.gateway.app.is_ready)
        await accepted(running, *items)
        found = await the_turn(running, turn_id)

    assert [answer.status_code for answer in refused] == [503, 503]
    assert refused[0].json()["error"]["code"] == "audit_unavailable"
    assert found["turn"]["chat_id"] == "c1"
    assert len(found["tool_calls"]) == 1


async def test_more_than_can_be_held_is_put_off(tmp_path: Path) -> None:
    """While the store stands still, records beyond two full bodies are to come again later."""
    extra = "[limits]\nrequest_bytes_max = 2048"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, _):
        with locked(tmp_path / "data"):
            answers = await asyncio.gather(
                *(send(running, an_item("tool_calls", error_code="e " * 900)) for _ in range(4))
            )

    told = sorted((answer.status_code, answer.json()["error"]["code"]) for answer in answers)
    assert told == [(429, "rate_limited")] * 2 + [(503, "audit_unavailable")] * 2
    assert {answer.headers.get("retry-after") for answer in answers} >= {"1"}


async def test_a_gateway_that_records_nothing_says_so(tmp_path: Path) -> None:
    """Without a record there is no such endpoint, so that senders do not wait for one."""
    extra = "[audit]\nenabled = false"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, _):
        answer = await send(running, an_item("tool_calls"))

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "endpoint_not_found")


async def test_many_senders_at_once_lose_nothing(tmp_path: Path) -> None:
    """Requests that arrive together, about the same turns too, are all stored."""
    turn_ids = [ids.generate_turn_id() for _ in range(20)]
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        await asyncio.gather(
            *(
                accepted(
                    running,
                    *(an_item("tool_calls", turn_id) for turn_id in turn_ids),
                    *(an_item("turn_audit", turn_id, variant=str(sender)) for turn_id in turn_ids),
                )
                for sender in range(8)
            )
        )
        found = [await the_turn(running, turn_id) for turn_id in turn_ids]

    assert [len(turn["tool_calls"]) for turn in found] == [8] * 20
    assert {turn["turn"]["tool_call_count"] for turn in found} == {8}
    assert all(turn["turn"]["revision"] <= 8 for turn in found)


async def test_the_request_itself_is_an_access_row(tmp_path: Path) -> None:
    """Who sent records, when and how many bytes, as of every request."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        answer = await send(running, an_item("tool_calls"))

    store = SqliteStore(tmp_path / "data")
    (access,) = store.scan(AccessEvent)
    store.close()
    assert (access.path_template, access.status_code) == ("/v1/records", 200)
    assert access.request_id == answer.headers["x-request-id"]
    assert access.timestamp > START - 10**15
