"""The search index beside a gateway that serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import msgspec

from everyturn.gateway.indexing import Indexing
from everyturn.gateway.log import Log
from everyturn.mock.script import Script
from everyturn.store.finding import Found, find, read_query
from everyturn.store.following import Follower
from everyturn.store.said import FIELDS
from everyturn.store.search import ALL_TURNS, SEARCH_NAME, SearchIndex
from everyturn.store.sqlite import SqliteStore
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.gateway.test_daily import until
from tests.support.gateway import Running, gateway_and_mock
from tests.support.search import message, tell
from tests.support.store_records import an_index


def in_index(data: Path, query: str) -> list[Found]:
    """What the index holds at this moment; nothing is taken in for it."""
    index = SearchIndex(data)
    try:
        return find(index, read_query(query), fields=FIELDS, limit=10)
    finally:
        index.close()


async def metrics_of(running: Running) -> str:
    """The gateway's metrics."""
    url = f"http://127.0.0.1:{running.gateway.port}/metrics"
    answer: httpx.Response = await running.client.get(url)
    return answer.text


async def test_a_follower_ends_with_its_gateway(tmp_path: Path) -> None:
    """Its stdin ends when the gateway is killed, and so does it."""
    store = SqliteStore(tmp_path / "data")
    tell(store, an_index(), [message("user", "hello")], "a")
    follower = subprocess.Popen(
        [sys.executable, "-m", "everyturn.store.following", str(store.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with follower:
        assert follower.stdin is not None
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"0\n"
        follower.stdin.close()
        assert follower.wait(timeout=20) == 0
    store.close()

    assert len(in_index(store.folder, "hello")) == 1


class CountingIndex:
    """An index that notes how many turns it is to look at, over a store that always changes."""

    lag = 0

    def __init__(self) -> None:
        self.looks: list[int] = []

    @property
    def store_version(self) -> int:
        """Another one each time."""
        return len(self.looks)

    def catch_up(self, *, newest: int, pause: Callable[[float], bool]) -> bool:
        """Note it; a pause never ends it."""
        self.looks.append(newest)
        return not pause(0.0)


def test_wider_looks_come_now_and_then() -> None:
    """All turns are looked at in the beginning and each hour, many of them each minute."""
    now = 0.0
    index: Any = CountingIndex()
    follower = Follower(index, wait=lambda _: None, clock=lambda: now)

    for now in (0.0, 1.0, 2.0, 61.0, 62.0, 3600.0, 3601.0):  # noqa: B007 (the clock reads it)
        follower.round()

    assert index.looks == [ALL_TURNS, 100_000, 2_000, 100_000, 2_000, ALL_TURNS, 100_000]


async def test_turns_are_found_seconds_later(tmp_path: Path) -> None:
    """A gateway indexes its turns by itself, those of the time before it included."""
    data = tmp_path / "data"
    store = SqliteStore(data)
    old = tell(store, an_index(), [message("user", "words of old")], "a")
    store.close()

    async with gateway_and_mock(data) as (running, _):
        await until(lambda: len(in_index(data, "words of old")) == 1)
        answer = await running.chat("m", messages=[{"role": "user", "content": "a new word"}])
        await until(lambda: len(in_index(data, "new word")) == 1)
        metrics = ""
        async with asyncio.timeout(20):
            while "everyturn_search_lag_turns" not in metrics:
                metrics = await metrics_of(running)

    assert in_index(data, "words of old")[0].turn_id == old.turn_id
    assert in_index(data, "new word")[0].turn_id == answer.headers["x-everyturn-turn-id"]
    assert "\neveryturn_search_lag_turns 0\n" in metrics
    assert "\neveryturn_search_failures_total 0\n" in metrics


async def test_an_index_that_fails_costs_no_turn(tmp_path: Path) -> None:
    """Turns are answered and recorded; the failures are counted and logged."""
    data = tmp_path / "data"
    SqliteStore(data).close()
    (data / SEARCH_NAME).mkdir()

    async with gateway_and_mock(data) as (running, mock):
        mock.add("m", Script.sse([chunk(content="fine"), FINISH, DONE]))
        await until(lambda: any(line["event"] == "search.failed" for line in running.log_lines))
        answer = await running.chat("m", stream=True)
        metrics = await metrics_of(running)

    assert answer.content.endswith(DONE)
    assert "\neveryturn_search_failures_total 1\n" in metrics


async def test_a_failed_round_is_tried_again(tmp_path: Path) -> None:
    """Once the index can be made, the thread goes on by itself."""
    store = SqliteStore(tmp_path / "data")
    tell(store, an_index(), [message("user", "hello")], "a")
    place = store.folder / SEARCH_NAME
    place.mkdir()
    log = BytesIO()
    indexing = Indexing(store.folder, Log(out=log), start_seconds=0, retry_seconds=0.01)

    indexing.start()
    try:
        await until(lambda: indexing.failures >= 2)
        place.rmdir()
        await until(lambda: place.is_file() and len(in_index(store.folder, "hello")) == 1)
    finally:
        indexing.stop()
        store.close()

    lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
    assert {line["event"] for line in lines} == {"search.failed"}
    assert "hello" not in log.getvalue().decode()


async def test_an_erased_turn_leaves_while_the_thread_runs(tmp_path: Path) -> None:
    """What remains is found again, what was erased is not."""
    store = SqliteStore(tmp_path / "data")
    contents = an_index()
    kept = tell(store, contents, [message("user", "hello kept")], "a")
    gone = tell(store, contents, [message("user", "hello gone")], "b")
    indexing = Indexing(store.folder, Log(is_on=False), start_seconds=0)

    indexing.start()
    try:
        await until(lambda: len(in_index(store.folder, "hello")) == 2)
        store.erase([gone.turn_id])
        await until(lambda: len(in_index(store.folder, "hello")) == 1)
    finally:
        indexing.stop()

    assert [one.turn_id for one in in_index(store.folder, "hello")] == [kept.turn_id]
    assert indexing.failures == 0
    store.close()
