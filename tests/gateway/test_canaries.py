"""A secret of each of 250 kinds, in every place a turn has, is found nowhere at rest afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from openai import APIError, AsyncOpenAI

import everyturn
from everyturn import ids
from everyturn.audit.schema import LOGS
from everyturn.cli.main import main
from everyturn.mock.script import ABORT, Script
from everyturn.mock.server import MockProvider
from everyturn.sdk.process import this_process
from everyturn.store.export import export_day
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support import canaries
from tests.support.canaries import CANARIES, KINDS_MIN, TEXTS, TOGETHER, found_in, halves
from tests.support.gateway import HELLO, Running, running_gateway
from tests.support.sending import START, an_item, send

KNOWN = "correct horse FAKE battery staple"
PROVIDER_KEY = "provider FAKE key in no format at all"
OWN = "TICKET-FAKE-000042"
EXTRA = f"""
[plugins.canaries]
fields = {{ filter = "str", why = "list" }}
[reasoning]
store = "keep"
[media]
store = "keep"
[redaction]
known_env = ["FAKE_KNOWN"]
[[redaction.rules]]
name = "ticket"
pattern = "{OWN[:12]}[0-9]{{6}}"
"""
ENVIRONMENT = {"FAKE_KNOWN": KNOWN, "FAKE_PROVIDER_KEY": PROVIDER_KEY}
UPLOADS_MIN = 5
"""Text files, each in another form, that rest and are read back: redacted."""
OTHERS = [KNOWN, PROVIDER_KEY, OWN]
"""Secrets that no format tells: handed in, and told by the operator's own rule."""


def delta(**members: Any) -> bytes:
    """One event with this delta."""
    return chunk(**members)


def in_pieces() -> list[bytes]:
    """A stream in which each secret is cut in the middle: text, refusal, reasoning, arguments."""
    pieces: list[bytes] = []
    for key in ("reasoning_content", "content", "refusal"):
        for text in [*TEXTS, *OTHERS]:
            first, second = halves(text)
            pieces += [delta(**{key: first}), delta(**{key: f"{second}\n\n"})]
    for number, text in enumerate(TEXTS):
        call = canaries.tool_call(number, {"note": text})
        first, second = halves(call["function"]["arguments"])
        head = {**call["function"], "arguments": first}
        pieces.append(delta(tool_calls=[{**call, "index": number, "function": head}]))
        pieces.append(delta(tool_calls=[{"index": number, "function": {"arguments": second}}]))
    return [*pieces, FINISH, DONE]


def error_body() -> bytes:
    """A provider's error that says all secrets."""
    error = {"message": TOGETHER, "type": TEXTS[5], "code": TEXTS[6], "details": TEXTS}
    return msgspec.json.encode({"error": error, "request": {"headers": dict.fromkeys(TEXTS, "x")}})


class Visit:
    """One client at a gateway, asking for everything that can hold a secret."""

    def __init__(self, running: Running, mock: MockProvider, folder: Path) -> None:
        self.running = running
        self.mock = mock
        self.folder = folder
        self.turn_ids: list[str] = []

    async def ask(self, script: Script | None, **body: Any) -> Any:
        """The answer to a request; `script` is what the provider says to it."""
        if script is not None:
            self.mock.add("scripted", script)
        messages = body.pop("messages", [{"role": "user", "content": TEXTS[0]}])
        whole = {"model": body.pop("model", "m"), "messages": messages, **body}
        answer = await self.running.client.post("/chat/completions", json=whole)
        self.turn_ids.append(answer.headers["x-everyturn-turn-id"])
        return answer

    async def requests(self) -> None:
        """Prompts, tools, arguments, results, files, parameters."""
        for messages in (canaries.history(), canaries.encoded_history(), canaries.uploads()):
            said = await self.ask(Script.whole(body=PLAIN), messages=messages)
            assert said.status_code == 200, said.text[:300]
        others = [{"role": "user", "content": f"say {other}"} for other in OTHERS]
        await self.ask(Script.whole(body=PLAIN), messages=others)
        parameters: dict[str, Any] = {
            "tools": canaries.tools(),
            "metadata": {str(number): text for number, text in enumerate(TEXTS)},
            "user": TEXTS[7],
            "stop": TEXTS[:4],
            "logit_bias": {TEXTS[8]: 1},
        }
        said = await self.ask(Script.whole(body=PLAIN), **parameters)
        assert said.status_code == 200, said.text[:300]

    async def answers(self) -> None:
        """Whole, streamed in pieces, cut off; the client gets the bytes as they were sent."""
        body = msgspec.json.encode(canaries.answer())
        assert (await self.ask(Script.whole(body=body))).content == body
        pieces = in_pieces()
        streamed = await self.ask(Script.sse(pieces), stream=True)
        assert streamed.content == b"".join(pieces)
        cut = await self.ask(Script.sse([*pieces[:700], ABORT]), stream=True)
        assert cut.content.startswith(b"".join(pieces[:700]))

    async def errors(self) -> None:
        """Errors of the provider, in every form, and of the way to it."""
        text = TOGETHER.encode()
        named = {"x-request-id": CANARIES[9].core, "retry-after": CANARIES[10].core}
        for script in (
            Script.whole(400, body=error_body()),
            Script.whole(500, headers=named, body=error_body()),
            Script.whole(401, body=error_body()),
            Script.whole(400, headers={"content-type": "text/html"}, body=text),
            Script.whole(200, body=error_body()),
            Script.whole(200, body=text),
        ):
            assert (await self.ask(script)).status_code >= 400
        for wire in ([b"data: " + error_body() + b"\n\n"], [b"data: " + text + b"\n\n"]):
            await self.ask(Script.sse([delta(content="a"), *wire]), stream=True)
        drift = delta(thoughts=TOGETHER, content=TEXTS[0])
        assert "protocol_drift" in (await self.ask(Script.sse([drift]), stream=True)).text
        assert (await self.ask(None, model="gone")).status_code == 502

    async def refusals(self) -> None:
        """Requests that are refused: what they say stands in their paths, names and headers."""
        client = self.running.client
        root = self.running.url.removesuffix("/v1")
        for number, planted in enumerate(CANARIES):
            name = planted.text[:60]
            bodies: list[dict[str, Any]] = [
                {"model": planted.text},
                {name: 1},
                {"messages": [{"role": planted.text, "content": {name: 1}}]},
            ]
            await self.ask(None, **bodies[number % 3])
            path = ("/v1/models/", "/v1/turns/", "/", "/?key=")[number % 4]
            await client.get(f"{root}{path}{planted.core}".replace("\n", " "))
        broken = json.dumps({"model": "m", "messages": TEXTS})[:-3].encode()
        await client.post("/chat/completions", content=broken)
        header = {"content-type": "application/json"}
        await client.post("/chat/completions", content=broken, headers=header)
        await client.post(f"/{TEXTS[0]}", content=broken, headers=header)

    async def headers(self) -> None:
        """Headers that the gateway reads, adopts or passes on, and ids in the body."""
        client = self.running.client
        adopted = (
            "authorization",
            "cookie",
            "user-agent",
            "x-request-id",
            "traceparent",
            "x-api-key",
        )
        alone = ("x-everyturn-turn-id", "origin", "referer")
        # Of other kinds the secret alone, without what stands around it, is told by nothing.
        named = [planted.core for planted in CANARIES if planted.core == planted.text]
        for number, core in enumerate(named):
            headers = {**dict.fromkeys(adopted, core), "tracestate": f"vendor={core}"}
            if number % 2:
                del headers["x-request-id"]
            body = {"model": "m", "messages": HELLO, "everyturn": {"request_id": core}}
            await client.post("/chat/completions", json=body, headers=headers)
            await client.get("/models", headers={alone[number % 3]: core})

    async def openai_client(self) -> None:
        """The official client: the same secrets, by the way applications take."""
        url = self.running.url
        async with AsyncOpenAI(base_url=url, api_key=CANARIES[0].core, max_retries=0) as client:
            self.mock.add("scripted", Script.sse(in_pieces()))
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": TOGETHER}],
                stream=True,
                extra_headers={"x-my-key": CANARIES[1].core},
                extra_query={"api_key": CANARIES[2].core},
            )
            said = [c.choices[0].delta.content or "" async for c in stream if c.choices]
            assert "".join(said) == "".join(f"{text}\n\n" for text in [*TEXTS, *OTHERS])
            self.mock.add("scripted", Script.whole(400, body=error_body()))
            with pytest.raises(APIError, match="FAKE"):
                await client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": TOGETHER}]
                )

    async def records(self) -> None:
        """What applications record: by the SDK, and by hand with the text in every field that takes
        one."""
        before = everyturn.counters()
        await asyncio.to_thread(self._by_sdk)
        after = everyturn.counters()
        assert after["sent"] - before["sent"] >= 5 * len(CANARIES)
        assert after["refused"] == before["refused"]
        for start in range(0, len(CANARIES), 100):
            items = [item for p in CANARIES[start : start + 100] for item in items_of(p.text)]
            answer = await send(self.running, *items)
            assert answer.json() == {"accepted": len(items), "refused": []}
        refused = [an_item("tool_calls", request_id=p.core, tool_name=p.text) for p in CANARIES]
        await send(self.running, *refused)
        odd = [an_item("tool_calls", status=p.text, **{p.text: 1}) for p in CANARIES]
        assert (await send(self.running, *odd)).json()["accepted"] == 0

    def _by_sdk(self) -> None:
        given = this_process().given
        url = self.running.url.removesuffix("/v1")
        everyturn.configure(url=url, spill_folder=self.folder / "spill")
        try:
            for planted in CANARIES:
                tell_all(planted.text)
            assert everyturn.flush(60)
        finally:
            everyturn.configure(url="http://127.0.0.1:9", spill_folder=self.folder / "after")
            this_process().given = given

    async def readings(self) -> str:
        """What the gateway and the commands give back of all that."""
        client, ids = self.running.client, self.turn_ids
        given = [(await client.get(f"/turns/{one}")).text for one in ids[:20] + ids[20::20]]
        root = self.running.url.removesuffix("/v1")
        for path in ("/metrics", "/readyz", "/v1/models"):
            given.append((await self.running.client.get(root + path)).text)
        return "\n".join(given)


PLAIN = b'{"choices":[{"index":0,"message":{"content":"ok"},"finish_reason":"stop"}]}'


def models(url: str) -> list[dict[str, Any]]:
    """One model that answers, and one whose provider is away, with a secret in its address."""
    keyed = {"preset": "deepseek", "api_key_env": "FAKE_PROVIDER_KEY", "upstream_model": "scripted"}
    query = {"key": CANARIES[11].core}
    gone = "http://127.0.0.1:9/v1"
    return [
        {"name": "m", "base_url": url, "allow": ["metadata"], **keyed},
        {"name": "gone", "base_url": gone, "query": query, **keyed},
    ]


def items_of(text: str) -> list[dict[str, Any]]:
    """A record of each log in which every field that takes any text, or any JSON, is this one."""
    turn_id = ids.generate_turn_id()
    items = []
    for log in LOGS:
        item = an_item(log.name, turn_id)
        for column in log.columns:
            if column.name in item or column.name in NOT_ANY_TEXT:
                continue
            if column.kind == "text":
                item[column.name] = text
            elif column.kind == "json" and column.name != "attributes_json":
                item[column.name] = [text, {"raw": json.dumps({"inner": text})}]
        items.append(item)
    return items


NOT_ANY_TEXT = {
    *("request_id", "trace_id", "span_id", "parent_span_id", "fallback_of", "transport"),
    *("outcome", "failure_type", "human_review_status", "label_primary_issue", "stream_state"),
    *("principal", "redaction_rules_version", "redactions_json", "sources_by_field_json"),
}
"""Fields of a closed set, ids, and what no sender says."""


def commands(data: Path, turn_ids: Iterable[str]) -> str:
    """What the commands print of these turns."""
    day = datetime.fromtimestamp(START / 1e6, UTC).date().isoformat()
    out = str(data.parent / "export")
    given = [["turns", "--limit", "2000"], ["failures"], ["find", "FAKE"], ["find", "refused"]]
    given += [["export", "--day", day, "--out", out]]
    media = str(data.parent / "media")
    given += [["show", one, "--include-reasoning", "--media", media] for one in turn_ids]
    env = {"EVERYTURN_DATA": str(data)}
    list(export_day(data, datetime.now(UTC).date(), data.parent / "export"))
    return "".join(CliRunner().invoke(main, line, env=env).output for line in given)


def all_found(data: bytes) -> set[str]:
    """Kinds found in some bytes, the secrets without a format among them."""
    return found_in(data) | {other for other in OTHERS if other.encode() in data}


async def test_no_canary_is_found_at_rest(tmp_path: Path) -> None:
    """After requests, answers, errors and refusals with 250 kinds of secrets: none in any file, log
    line, metric, reading or command; the client's bytes are as they were sent."""
    assert len({planted.kind for planted in CANARIES}) >= KINDS_MIN
    data = tmp_path / "place" / "data"
    async with (
        MockProvider() as mock,
        running_gateway(models(mock.url), data, extra=EXTRA, environment=ENVIRONMENT) as running,
    ):
        visit = Visit(running, mock, data.parent)
        await visit.requests()
        await visit.answers()
        await visit.errors()
        await visit.refusals()
        await visit.headers()
        await visit.openai_client()
        await visit.records()
        readings = await visit.readings()
        told = await asyncio.to_thread(commands, data, visit.turn_ids[:12])
        # While it is open: the write-ahead log still has all that was ever written.
        files = {path: path.read_bytes() for path in data.parent.rglob("*") if path.is_file()}
    log = json.dumps(running.log_lines, ensure_ascii=False)

    assert any(path.name.endswith("-wal") and content for path, content in files.items())
    given = [readings.encode(), told.encode(), log.encode(), *files.values()]
    assert len(list(data.parent.glob("export/*.jsonl"))) >= len(LOGS)
    uploads = [content for path, content in files.items() if path.parent.name == "media"]
    assert len(uploads) >= UPLOADS_MIN
    assert all(b"[redacted:" in content for content in uploads)
    assert set().union(*map(all_found, given)) == set()


def test_no_canary_is_found_in_a_spill_file(tmp_path: Path) -> None:
    """What an application says of its turns while the gateway is away rests without secrets:
    texts, arguments, results, exceptions, queries, sources, attributes and notes."""
    before = this_process().given
    everyturn.configure(url="http://127.0.0.1:9", spill_folder=tmp_path / "spill")
    try:
        for planted in CANARIES:
            tell_all(planted.text)
        assert everyturn.flush(30)
        files = list((tmp_path / "spill").glob("*.jsonl"))
        lines = sum(path.read_bytes().count(b"\n") for path in files)
        found = canaries.found_in_files(tmp_path / "spill")
    finally:
        everyturn.configure(url="http://127.0.0.1:9", spill_folder=tmp_path / "after")
        this_process().given = before

    assert lines >= 5 * len(CANARIES)
    assert found == {}


def tell_all(text: str) -> None:
    """One turn in which everything an application can say is this text."""
    with everyturn.turn(user_text=text) as turn:
        with turn.retrieval(query=text, attributes={"filter": text}) as search:
            search.sources([{"id": "d1", "text": text, "url": text}])
        with turn.tool("mcp", "look_up", attributes={"why": [text]}) as run:
            run.request({"note": text, "raw": json.dumps({"inner": text})})
            run.response([text, {"more": text}])
        with pytest.raises(ValueError), turn.tool("internal", "fail"):
            raise ValueError(text)
        turn.finish(assistant_text=text)
    everyturn.review(turn.id, source="human", notes=text)
