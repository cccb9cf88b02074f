"""What a client sees of good answers, whole and streamed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everyturn.mock.script import Pause, Script
from tests.support.gateway import HELLO, gateway_and_mock


def frames(body: bytes) -> list[Any]:
    """The data of each event of a stream; the end marker as the string `[DONE]`."""
    data = [
        line[5:].strip()
        for event in body.split(b"\n\n")
        for line in event.split(b"\n")
        if line.startswith(b"data:")
    ]
    return ["[DONE]" if d == b"[DONE]" else msgspec.json.decode(d) for d in data]


def chunk(**delta: Any) -> bytes:
    """One event with this delta."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return b"data: " + msgspec.json.encode({"id": "c", "choices": [choice]}) + b"\n\n"


FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def test_untouched_body_passes_as_its_bytes(tmp_path: Path) -> None:
    """A whole answer that needs no change reaches the client byte for byte."""
    body = b'{ "choices": [ {"index":0,"message":{"role":"assistant","content":"a \\u0062"},'
    body += b'"finish_reason":"stop"} ], "x": 1E5 }'
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.whole(body=body))
        answer = await running.chat("m")

    assert answer.status_code == 200
    assert answer.content == body


async def test_untouched_frames_pass_as_their_bytes(tmp_path: Path) -> None:
    """Frames that need no change reach the client byte for byte, the end marker included."""
    wire = [b'data:{"choices":[{"index":0,"delta":{"content":"a"}}]}\r\n\r\n', FINISH, DONE]
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse(wire))
        answer = await running.chat("m", stream=True)

    assert answer.content == b"".join(wire)
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_reasoning_reaches_the_client_before_the_next_piece(tmp_path: Path) -> None:
    """A reasoning delta is shown while the provider still thinks: nothing is buffered."""
    wire = [chunk(reasoning_content="hm"), Pause(60_000), chunk(content="a"), FINISH, DONE]
    async with gateway_and_mock(tmp_path / "data", "deepseek") as (running, mock):
        mock.add("m", Script.sse(wire))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            async with asyncio.timeout(10):
                first = await anext(answer.aiter_bytes())

    assert frames(first)[0]["choices"][0]["delta"] == {"reasoning_content": "hm"}


async def test_headers_are_on_every_answer(tmp_path: Path) -> None:
    """Turn id, request id and trace come back on answers, streams and refusals."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([FINISH, DONE]))
        answers = [
            await running.chat("m", stream=True),
            await running.chat("nobody"),
            await running.client.get("/models"),
            await running.client.get("/nothing"),
        ]

    assert [answer.status_code for answer in answers] == [200, 404, 200, 404]
    for answer in answers:
        assert answer.headers["x-everyturn-turn-id"]
        assert answer.headers["x-request-id"]
        assert answer.headers["traceparent"].startswith("00-")


async def test_turn_id_of_the_client_is_taken(tmp_path: Path) -> None:
    """A UUID version 4 in the header names the turn; anything else is refused."""
    wanted = "7d5d2c80-6b1f-4c8e-9d5e-2f4d1c1b0a99"
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.whole(body=b'{"choices":[{"message":{"content":"a"}}]}'))
        body = {"model": "m", "messages": HELLO}
        headers = {"x-everyturn-turn-id": wanted}
        answer = await running.client.post("/chat/completions", json=body, headers=headers)
        headers = {"x-everyturn-turn-id": "not-a-turn"}
        refused = await running.client.post("/chat/completions", json=body, headers=headers)

    assert answer.headers["x-everyturn-turn-id"] == wanted
    assert refused.json()["error"]["param"] == "x-everyturn-turn-id"


async def test_keys_and_headers_of_the_provider_request(tmp_path: Path) -> None:
    """The provider gets the forwarded headers, and nothing else of the client."""
    async with gateway_and_mock(
        tmp_path / "data", forward_headers=["x-team", "user-agent"], query={"v": "1 2"}
    ) as (running, mock):
        mock.add("m", Script.whole(body=b'{"choices":[{"message":{"content":"a"}}]}'))
        sent = {"authorization": "Bearer sk-test-client", "x-team": "blue", "cookie": "a=b"}
        sent["user-agent"] = "theirs"
        body = {"model": "m", "messages": HELLO}
        await running.client.post("/chat/completions", json=body, headers=sent)
        seen = mock.requests[-1]

    assert seen.header("authorization") is None
    assert seen.header("cookie") is None
    assert seen.header("x-team") == "blue"
    assert [value for name, value in seen.headers if name == "user-agent"] == ["theirs"]
    assert seen.target.endswith("/chat/completions?v=1%202")


@pytest.mark.parametrize("mode", ["never", "always"])
async def test_other_form_than_asked(tmp_path: Path, mode: str) -> None:
    """A model asked only whole, or only streamed, serves both kinds of request, and says so."""
    async with gateway_and_mock(
        tmp_path / "data", "deepseek", stream=mode, upstream_model="deepseek"
    ) as (
        running,
        mock,
    ):
        whole = await running.chat("m")
        streamed = await running.chat("m", stream=True, stream_options={"include_usage": True})
        asked = [seen.streamed for seen in mock.requests]

    assert asked == [mode == "always"] * 2
    message = whole.json()["choices"][0]["message"]
    told = frames(streamed.content)
    assert told[-1] == "[DONE]"
    deltas = [c["delta"] for frame in told[:-1] for c in frame["choices"]]
    for key in ("reasoning_content", "content"):
        assert "".join(delta.get(key) or "" for delta in deltas) == message[key]
    assert told[-2]["usage"] == whole.json()["usage"]
    changed = streamed if mode == "never" else whole
    assert "stream" in changed.headers["x-everyturn-note"]


async def test_withheld_reasoning(tmp_path: Path) -> None:
    """With `show_reasoning = false` no form of the answer holds reasoning, and a note says so."""
    async with gateway_and_mock(
        tmp_path / "data", "deepseek", show_reasoning=False, upstream_model="deepseek"
    ) as (running, _):
        whole = await running.chat("m")
        streamed = await running.chat("m", stream=True)

    assert b"reasoning_content" not in whole.content
    deltas = [c["delta"] for f in frames(streamed.content)[:-1] for c in f["choices"]]
    assert not any(delta.get("reasoning_content") for delta in deltas)
    assert "reasoning withheld" in whole.headers["x-everyturn-note"]


async def test_stream_usage_asked_by_the_gateway_alone_is_not_shown(tmp_path: Path) -> None:
    """Stream usage that only the gateway asked for is not shown to the client."""
    async with gateway_and_mock(tmp_path / "data", "openai-chat", upstream_model="plain") as (
        running,
        mock,
    ):
        unasked = await running.chat("m", stream=True)
        asked = await running.chat("m", stream=True, stream_options={"include_usage": True})
        sent = [seen.json()["stream_options"] for seen in mock.requests]

    assert sent == [{"include_usage": True}] * 2
    assert not any(frame.get("usage") for frame in frames(unasked.content)[:-1])
    assert frames(asked.content)[-2]["usage"]["total_tokens"] > 0


async def test_models_are_listed(tmp_path: Path) -> None:
    """The list and the item tell preset and price, and an unknown one is a typed 404."""
    async with gateway_and_mock(tmp_path / "data", "openai-chat") as (running, _):
        listed = (await running.client.get("/models")).json()
        item = (await running.client.get("/models/m")).json()
        missing = await running.client.get("/models/nobody")

    assert [model["id"] for model in listed["data"]] == ["m"]
    assert item["everyturn"] == {"preset": "openai-chat", "price": None, "price_version": None}
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_probes(tmp_path: Path) -> None:
    """`/healthz` says alive and `/readyz` says that work can be taken."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        root = str(running.client.base_url).removesuffix("/v1/")
        alive = await running.client.get(f"{root}/healthz")
        ready = await running.client.get(f"{root}/readyz")

    assert alive.json() == {"status": "alive"}
    assert ready.json() == {"status": "ready", "open_turns": 0, "unrecorded_turns": 0}
