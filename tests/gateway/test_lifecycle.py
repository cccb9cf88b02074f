"""Clients that leave, and a gateway that stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

from everyturn.mock.script import HANG, Pause, Script
from tests.gateway.test_answers import DONE, FINISH, chunk, frames
from tests.support.gateway import HELLO, gateway_and_mock


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until `condition` holds, looking often; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_client_that_leaves_closes_the_provider(tmp_path: Path) -> None:
    """When the client goes away in a stream, the provider's connection is closed in a second."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([chunk(content="a"), HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            await anext(answer.aiter_bytes())
        await until(lambda: mock.stats().aborts_of("m") == 1, seconds=1.0)
        await until(lambda: running.gateway.app.chat.open_turns == 0)


async def test_a_client_that_leaves_before_the_answer(tmp_path: Path) -> None:
    """The same while the provider has not answered at all."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.raw([HANG]))
        asking = asyncio.create_task(running.chat("m"))
        await until(lambda: mock.stats().requests == 1)
        asking.cancel()
        await until(lambda: mock.stats().aborts_of("m") == 1, seconds=1.0)


async def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    """A client that reads slowly holds the provider back and loses nothing."""
    pieces = [chunk(content="x" * 10_000) for _ in range(200)]
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([*pieces, FINISH, DONE]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as answer:
            await asyncio.sleep(0.3)
            whole = b"".join([part async for part in answer.aiter_bytes()])

    assert whole == b"".join([*pieces, FINISH, DONE])


async def test_stopping_gives_open_turns_their_time(tmp_path: Path) -> None:
    """While it stops, a gateway ends open streams well and refuses new turns with a typed 503."""
    wire = [chunk(content="a"), Pause(700), chunk(content="b"), FINISH, DONE]
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse(wire))
        asking = asyncio.create_task(running.chat("m", stream=True))
        await until(lambda: mock.stats().requests == 1)
        stopping = asyncio.create_task(running.gateway.stop())
        await until(lambda: running.gateway.app.chat.is_stopping)
        refused = await running.chat("m")
        answer = await asking
        await stopping

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_stopping")
    assert refused.headers["retry-after"] == "1"
    assert frames(answer.content)[-1] == "[DONE]"


async def test_stopping_ends_what_takes_too_long(tmp_path: Path) -> None:
    """After the grace, what is still open ends with an error frame, not with a cut connection."""
    async with gateway_and_mock(tmp_path / "data", extra="shutdown_grace_ms = 100") as (
        running,
        mock,
    ):
        mock.add("m", Script.sse([chunk(content="a"), HANG]))
        asking = asyncio.create_task(running.chat("m", stream=True))
        await until(lambda: mock.stats().requests == 1)
        await running.gateway.stop()
        answer = await asking

    assert frames(answer.content)[-1]["error"]["code"] == "gateway_stopping"


async def test_too_many_turns_are_refused(tmp_path: Path) -> None:
    """Past the bound of open turns a new one is a typed 429 with a time to wait."""
    extra = "[limits]\nopen_turns_max = 1"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, mock):
        mock.add("m", Script.raw([HANG]))
        asking = asyncio.create_task(running.chat("m"))
        await until(lambda: mock.stats().requests == 1)
        refused = await running.chat("m")
        asking.cancel()

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
    assert refused.headers["retry-after"] == "1"


async def test_answers_leave_at_once(tmp_path: Path) -> None:
    """No write of an answer waits until the one before it was acknowledged (Nagle is off)."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        await running.client.get("/models")
        (connection,) = running.gateway._server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        is_off = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert is_off
