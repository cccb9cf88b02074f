"""Which turns a gateway knows, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from everyturn.gateway.turn_states import TurnStates
from everyturn.mock.script import ABORT, HANG, Script
from everyturn.store.sqlite import SqliteStore
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.gateway.test_lifecycle import until
from tests.support.gateway import HELLO, gateway_and_mock


def of_an_empty_store(folder: Path, kept_max: int = 1) -> TurnStates:
    """The states of a gateway that keeps one turn."""
    SqliteStore(folder / "data", durability="process").close()
    return TurnStates(folder / "data", kept_max=kept_max)


async def test_a_turn_is_one_for_all_who_work_on_it(tmp_path: Path) -> None:
    """Whoever joins a turn under way, or adds records to it, sees the state of its opener."""
    states = of_an_empty_store(tmp_path)

    opened = states.new("t", principal="a")

    assert await states.joined("t") is opened
    assert (await states.counted(["t"]))["t"] is opened


async def test_a_turn_that_ended_is_let_go(tmp_path: Path) -> None:
    """A turn that nobody joined or told of is unknown once its opener has released it."""
    states = of_an_empty_store(tmp_path)
    opened = states.new("t", principal="a")

    states.release("t", opened)

    assert await states.joined("t") is not opened
    with pytest.raises(AssertionError, match="nobody holds it"):
        states.release("t", opened)


async def test_the_latest_are_kept_and_the_held_are_known(tmp_path: Path) -> None:
    """A turn past the bound is known until the last who works on it releases it."""
    states = of_an_empty_store(tmp_path)
    first = await states.joined("first")
    assert await states.joined("first") is first
    states.release("first", first)
    second = await states.joined("second")
    states.release("second", second)

    assert await states.joined("first") is first
    assert await states.joined("second") is not second
    states.release("first", first)
    states.release("first", first)
    assert await states.joined("first") is not first


async def test_a_kept_turn_is_known_though_nobody_works_on_it(tmp_path: Path) -> None:
    """One of the latest is found as it is; it is read again after it was forgotten."""
    states = of_an_empty_store(tmp_path)
    joined = await states.joined("t")
    states.release("t", joined)

    assert await states.joined("t") is joined
    states.forget("t")
    assert await states.joined("t") is not joined


async def test_a_release_of_what_was_forgotten_leaves_the_turn_alone(tmp_path: Path) -> None:
    """What was forgotten while it was held is known anew, whatever its holder does."""
    states = of_an_empty_store(tmp_path, kept_max=0)
    stale = states.new("t", principal="a")
    states.forget("t")
    fresh = await states.joined("t")

    states.release("t", stale)

    assert fresh is not stale
    assert await states.joined("t") is fresh


async def test_no_turn_is_known_after_its_end(tmp_path: Path) -> None:
    """However a turn ends, its state is let go: answered, refused, failed, left by its client."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        states = running.gateway.app._recording.states
        said = chunk(content="a")
        mock.add("m", Script.sse([said, HANG]))
        body = {"model": "m", "messages": HELLO, "stream": True}
        async with running.client.stream("POST", "/chat/completions", json=body) as left:
            await anext(left.aiter_raw())
            assert len(states) == 1
        mock.add("m", Script.sse([said, ABORT]))
        await running.chat("m", stream=True)
        mock.add("m", Script.sse([said, FINISH, DONE]))
        answers = [
            await running.chat("m", stream=True),
            await running.chat("unknown"),
            await running.chat("m", messages=7),
            await running.client.post("/chat/completions", content=b"{"),
        ]

        assert [answer.is_success for answer in answers] == [True, False, False, False]
        await until(lambda: len(states) == 0)
