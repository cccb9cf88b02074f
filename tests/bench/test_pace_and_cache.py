"""Concurrency that gives way to 429, and answers that were given before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from everyturn.bench.client import retry_after
from everyturn.bench.pace import Pace
from everyturn.mock.scenario import Ask
from everyturn.mock.speech import Speech
from tests.support.bench import bench, error, questions, right, speech


async def test_a_429_halves_the_limit_and_answers_lift_it() -> None:
    """Many 429 of one moment halve it once; each answer lifts it, up to the most allowed."""
    pace = Pace(8)
    for _ in range(8):
        await pace.enter()
    for _ in range(4):
        pace.leave(is_throttled=True)
    halved = pace.limit
    for _ in range(4):
        pace.leave()
    for _ in range(40):
        await pace.enter()
        pace.leave()

    assert halved == 4
    assert pace.limit == 8


async def test_nothing_new_starts_until_retry_after_is_over() -> None:
    """A place is free, but the provider asked to wait."""
    pace = Pace(2)
    await pace.enter()
    pace.leave(is_throttled=True, wait_s=0.2)
    began = time.monotonic()

    await pace.enter()

    assert time.monotonic() - began >= 0.19


async def test_a_waiter_that_is_cancelled_passes_its_place_on() -> None:
    """No place is lost with a cancelled task."""
    pace = Pace(1)
    await pace.enter()
    first, second = (asyncio.create_task(pace.enter()) for _ in range(2))
    await asyncio.sleep(0)
    pace.leave()
    first.cancel()

    await asyncio.wait_for(second, timeout=2)


@pytest.mark.parametrize(
    "milliseconds, text, seconds",
    [
        ("250", "9", 0.25),
        (None, "2", 2.0),
        (None, "Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        (None, "Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        (None, "99999999", 300.0),
        (None, "soon", None),
        (None, "nan", None),
        (None, None, None),
    ],
)
def test_retry_after(milliseconds: str | None, text: str | None, seconds: float | None) -> None:
    """Seconds and dates, bounded; what says nothing is nothing."""
    assert retry_after(milliseconds, text, now=10.0) == seconds


async def test_a_hit_costs_nothing_and_is_marked(tmp_path: Path) -> None:
    """A second run with the same cache asks nobody; its rows name the turns they come from."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        grid = made.grid(cache="cache", epochs=2)
        await made.run(grid, "first")
        await made.run(grid, "second")

        first, second = made.rows("first"), made.rows("second")
        assert len(made.requests["m"]) == 6
        assert [row.cost for row in second] == [0.0] * 6
        assert all(row.attempts[0].cache_hit and row.turn_id is None for row in second)
        assert {row.cached_from for row in second} == {row.turn_id for row in first}
        assert [row.scores for row in second] == [{"right": 1.0}] * 6


async def test_errors_are_not_kept(tmp_path: Path) -> None:
    """A failure is asked about again; what changes the request or the seed is another question."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        made.answers("m", lambda question, ask: error(400))
        await made.run(made.grid(cache="cache"), "first")
        made.answers("m", right)
        await made.run(made.grid(cache="cache"), "second")
        more = '[[models]]\nname = "m"\nmax_tokens = 7\n'
        await made.run(made.grid(more, cache="cache"), "third")

        assert [row.outcome for row in (*made.rows("second"), *made.rows("third"))] == ["ok", "ok"]
        assert len(made.requests["m"]) == 3


async def test_reasoning_rests_in_no_cache(tmp_path: Path) -> None:
    """A row from the cache has no reasoning, says so, and is not taken for an unknown shape."""

    def answering(question: str, ask: Ask) -> Speech:
        return speech("It is pear 0.", reasoning="MARKER")

    async with bench(tmp_path) as made:
        made.items(questions(1))
        made.answers("m", answering)
        for out in ("first", "second"):
            text = '[[models]]\nname = "m"\nthinking = true\n'
            await made.run(made.grid(text, cache="cache"), out)

        (row,) = made.rows("second")
        assert (row.reasoning_state, row.reasoning_carrier) == ("absent", None)
        assert row.flags == ("reasoning_not_cached",)
        kept = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
        assert len(kept) == 2
        assert not any(b"MARKER" in path.read_bytes() for path in kept)
