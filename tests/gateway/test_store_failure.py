"""What happens to turns while the store cannot be written."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from everyturn import ids
from everyturn.mock.script import Pause, Script
from tests.gateway.test_answers import DONE, FINISH, chunk, frames
from tests.gateway.test_lifecycle import until
from tests.support.gateway import HELLO, Running, gateway_and_mock

SERVE = '[audit]\non_failure = "serve"'


LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Hold the store's write lock, as a tool that someone left open would.

    In a process of its own: file locks do not keep out the process that holds them.
    """
    command = [sys.executable, "-c", LOCKER, str(data / "everyturn.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locker:
        assert locker.stdout is not None
        assert locker.stdout.readline() == b"locked\n"
        yield
        locker.communicate(b"")


async def ready(running: Running) -> httpx.Response:
    """What `/readyz` says."""
    root = str(running.client.base_url).removesuffix("/v1/")
    return await running.client.get(f"{root}/readyz")


async def closed_turn(running: Running, answer: httpx.Response) -> dict[str, Any]:
    """The turn of an answer, once it is closed."""
    told: dict[str, Any] = {}
    async with asyncio.timeout(10):
        while not told.get("access_events"):
            path = f"/turns/{answer.headers['x-everyturn-turn-id']}"
            told = (await running.client.get(path)).json()
    return told


async def test_no_call_is_made_without_a_record(tmp_path: Path) -> None:
    """While rows cannot be written, requests get 503 and no provider is asked; then it recovers."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, mock):
        with locked(tmp_path / "data"):
            refused = await running.chat("m")
            unready = await ready(running)
            asked = mock.stats().requests
        await until(lambda: running.gateway.app.is_ready)
        served = await running.chat("m")

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "audit_unavailable")
    assert (unready.status_code, unready.json()["status"]) == (503, "store_unwritable")
    assert asked == 0
    assert served.status_code == 200


async def test_a_turn_goes_on_from_what_was_stored(tmp_path: Path) -> None:
    """Calls that were refused for want of a record are not counted in their turn, nor is its row
    taken for stored: a call that joins it later opens it, so that a crash can close it."""
    turn_id = ids.generate_turn_id()
    joining = {"x-everyturn-turn-id": turn_id}
    body = {"model": "m", "messages": HELLO}
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([chunk(content="a"), Pause(500), FINISH, DONE]))
        with locked(tmp_path / "data"):
            refused = [
                await running.client.post("/chat/completions", json=body, headers=joining)
                for _ in range(2)
            ]
        await until(lambda: running.gateway.app.is_ready)
        asking = asyncio.create_task(
            running.client.post("/chat/completions", json={**body, "stream": True}, headers=joining)
        )
        await until(lambda: mock.stats().requests == 1)
        is_open = (await running.client.get(f"/turns/{turn_id}")).json()
        await asking
        ended = (await running.client.get(f"/turns/{turn_id}")).json()

    assert [answer.status_code for answer in refused] == [503, 503]
    assert is_open["turn"]["user_text"] == "hello"
    assert (ended["turn"]["outcome"], ended["turn"]["revision"]) == ("success", 2)
    assert ended["turn"]["model_call_count"] == len(ended["model_calls"]) == 1


async def test_an_answer_under_way_ends_with_an_error(tmp_path: Path) -> None:
    """An answer whose record cannot be closed does not end as if it were recorded."""
    wire = [chunk(content="a"), Pause(500), FINISH, DONE]
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse(wire))
        asking = asyncio.create_task(running.chat("m", stream=True))
        await until(lambda: mock.stats().requests == 1)
        with locked(tmp_path / "data"):
            answer = await asking
        turn = await closed_turn(running, answer)

    told = frames(answer.content)
    assert told[-1]["error"]["code"] == "audit_unavailable"
    assert "[DONE]" not in told
    assert turn["turn"]["error_code"] == "audit_unavailable"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_turn_whose_answer_finds_no_room_says_so(tmp_path: Path, stream: bool) -> None:
    """Its client and its record say the same, and it does not stay open."""
    answer = chunk(content="x" * 3_000_000)
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([answer, FINISH, DONE]))
        store = running.gateway.app._recording._store
        assert store is not None
        pages = store._db.pragma("page_count")
        store._db.pragma("max_page_count", pages + 200)
        got = await running.chat("m", stream=stream)
        told = await closed_turn(running, got)

    error = frames(got.content)[-1]["error"] if stream else got.json()["error"]
    (call,), (access,) = told["model_calls"], told["access_events"]
    assert error["code"] == "audit_unavailable"
    assert (told["turn"]["outcome"], told["turn"]["error_code"]) == (
        "partial" if stream else "failure",
        "audit_unavailable",
    )
    assert (call["stream_state"], call["error_code"]) == ("error", "audit_unavailable")
    assert (access["status_code"], access["error_code"]) == (got.status_code, "audit_unavailable")


async def test_the_operator_may_choose_to_serve_unrecorded(tmp_path: Path) -> None:
    """With `on_failure = "serve"` the answer comes, and each such turn is counted and logged."""
    async with gateway_and_mock(tmp_path / "data", extra=SERVE, upstream_model="plain") as (
        running,
        _,
    ):
        with locked(tmp_path / "data"):
            answer = await running.chat("m")
            state = (await ready(running)).json()
        events = [line["event"] for line in running.log_lines]

    assert answer.status_code == 200
    assert answer.json()["choices"]
    assert state["unrecorded_turns"] == 1
    assert events.count("record.unrecorded") == 1
