"""The pool of one origin: which connection is next, how many there are, whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from everyturn.errors import UpstreamTimeout, UpstreamUnreachable
from everyturn.transport.base import UpstreamResponse
from everyturn.transport.connection import Connection
from everyturn.transport.deadlines import Deadlines
from everyturn.transport.direct import DirectTransport
from everyturn.transport.pool import OriginPool
from tests.support.scripted_upstream import (
    Peer,
    ScriptedUpstream,
    a_request,
    answer,
    answering,
    chunk,
    chunked_head,
    limits,
    read_all,
    until,
)


@pytest_asyncio.fixture
async def narrow() -> AsyncIterator[DirectTransport]:
    """A transport with at most two connections to an origin."""
    transport = DirectTransport(connections_per_origin_max=2)
    yield transport
    await transport.close()


class Gate:
    """A provider that answers each request when it is told to, with the request's own body."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, asyncio.Event] = {}

    async def script(self, peer: Peer) -> None:
        while True:
            body = (await peer.receive()).body
            self.waiting[body] = asyncio.Event()
            await self.waiting[body].wait()
            peer.send(answer(body))

    async def arrived(self, *bodies: bytes) -> None:
        """Wait until exactly these requests have come."""
        await until(lambda: set(self.waiting) == set(bodies))

    def answer(self, body: bytes) -> None:
        """Let one request be answered."""
        self.waiting[body].set()


async def opened(
    transport: DirectTransport, upstream: ScriptedUpstream, body: bytes, **more: int
) -> UpstreamResponse:
    """One call whose body says which it is."""
    return await transport.open(a_request(upstream.url, body), limits(**more))


async def a_pool(connections_max: int = 1) -> OriginPool:
    """A pool without a transport around it."""
    loop = asyncio.get_running_loop()
    return OriginPool(loop, Deadlines(loop), connections_max=connections_max, idle_expiry_s=4.0)


def a_connection(pool: OriginPool) -> Connection:
    """A connection in the pool's room that never gets a socket."""
    assert pool.reserve()
    loop = asyncio.get_running_loop()
    connection = Connection(loop, Deadlines(loop), pool)
    pool.admit(connection)
    return connection


def later() -> float:
    """A deadline nobody reaches."""
    return asyncio.get_running_loop().time() + 60


# ------------------------------------------------------------------------------------------ at rest


async def test_the_connection_used_last_is_used_next() -> None:
    """Three at rest: they are taken in the reverse order of their coming."""
    pool = await a_pool(3)
    first, second, third = (a_connection(pool) for _ in range(3))
    for connection in (second, first, third):
        pool.release(connection, 60)

    assert [pool.take(), pool.take(), pool.take(), pool.take()] == [third, first, second, None]


async def test_connections_are_made_only_when_none_is_at_rest() -> None:
    """Ten calls one after the other need one connection, three at once need three."""
    gate = Gate()
    async with ScriptedUpstream(gate.script) as upstream:
        transport = DirectTransport()
        for number in range(10):
            calling = asyncio.ensure_future(opened(transport, upstream, b"%d" % number))
            await gate.arrived(*(b"%d" % n for n in range(number + 1)))
            gate.answer(b"%d" % number)
            await read_all(await calling)
        assert len(upstream.peers) == 1

        three = [
            asyncio.ensure_future(opened(transport, upstream, body)) for body in (b"a", b"b", b"c")
        ]
        await until(lambda: len(gate.waiting) == 13)
        assert len(upstream.peers) == 3
        for body in (b"a", b"b", b"c"):
            gate.answer(body)
        await asyncio.gather(*three)
        await transport.close()


@pytest.mark.parametrize(
    "keep_alive, expiry_s",
    [
        ("", 0.1),
        ("keep-alive: timeout=1, max=100", 4.0),
        ("keep-alive: timeout=60", 0.1),
    ],
    ids=["ours", "the-providers", "ours-is-shorter"],
)
async def test_a_connection_rests_only_so_long(keep_alive: str, expiry_s: float) -> None:
    """The shorter of our own time and the provider's, less a margin, closes what is not used."""
    transport = DirectTransport(idle_expiry_s=expiry_s)
    headers = (keep_alive,) if keep_alive else ()
    async with ScriptedUpstream(answering(answer(headers=headers))) as upstream:
        await read_all(await transport.open(a_request(upstream.url), limits()))
        await upstream.peers[0].gone(3)
        await read_all(await transport.open(a_request(upstream.url), limits()))
        assert len(upstream.peers) == 2
        await transport.close()


async def test_a_connection_in_use_does_not_expire() -> None:
    """The time at rest counts from the last use, not from the first."""
    transport = DirectTransport(idle_expiry_s=0.25)
    async with ScriptedUpstream(answering(answer())) as upstream:
        for _ in range(8):
            await read_all(await transport.open(a_request(upstream.url), limits()))
            await asyncio.sleep(0.05)
        assert len(upstream.peers) == 1
        await transport.close()


async def test_origins_do_not_share_connections(narrow: DirectTransport) -> None:
    """A provider at its bound does not hold up another."""
    gate = Gate()
    async with ScriptedUpstream(gate.script) as busy, ScriptedUpstream(answering(answer())) as free:
        calls = [asyncio.ensure_future(opened(narrow, busy, b"%d" % n)) for n in range(3)]
        await gate.arrived(b"0", b"1")
        assert await read_all(await opened(narrow, free, b"x")) == b"{}"
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


# ------------------------------------------------------------------------------------- at the bound


async def test_calls_wait_their_turn(narrow: DirectTransport) -> None:
    """At the bound calls go on in the order they came, over the connections there are."""
    gate = Gate()
    bodies = [b"%d" % number for number in range(6)]
    async with ScriptedUpstream(gate.script) as upstream:
        calls = [asyncio.ensure_future(opened(narrow, upstream, body)) for body in bodies]
        await gate.arrived(b"0", b"1")
        for done, expected in ((b"1", b"2"), (b"0", b"3"), (b"3", b"4"), (b"2", b"5")):
            gate.answer(done)
            await until(lambda expected=expected: expected in gate.waiting)
            assert len(gate.waiting) == int(expected) + 1
        gate.answer(b"4")
        gate.answer(b"5")

        assert [await read_all(response) for response in await asyncio.gather(*calls)] == bodies
        assert len(upstream.peers) == 2


async def test_waiting_is_inside_the_total_limit(narrow: DirectTransport) -> None:
    """A call whose turn does not come in time fails and leaves no trace; the next gets the turn."""
    gate = Gate()
    async with ScriptedUpstream(gate.script) as upstream:
        calls = [asyncio.ensure_future(opened(narrow, upstream, b"%d" % n)) for n in range(2)]
        await gate.arrived(b"0", b"1")
        with pytest.raises(UpstreamTimeout, match=r"became free in time; `total_ms` is: 100$"):
            await opened(narrow, upstream, b"late", total_ms=100)
        patient = asyncio.ensure_future(opened(narrow, upstream, b"patient"))
        gate.answer(b"0")
        await until(lambda: b"patient" in gate.waiting)
        gate.answer(b"patient")
        gate.answer(b"1")
        await asyncio.gather(patient, *calls)

        assert b"late" not in gate.waiting


async def test_giving_up_a_wait_lets_the_next_one_in(narrow: DirectTransport) -> None:
    """A cancelled call that waited takes nobody's turn."""
    gate = Gate()
    async with ScriptedUpstream(gate.script) as upstream:
        calls = [asyncio.ensure_future(opened(narrow, upstream, b"%d" % n)) for n in range(4)]
        await gate.arrived(b"0", b"1")
        calls[2].cancel()
        gate.answer(b"0")
        await until(lambda: b"3" in gate.waiting)
        calls[1].cancel()
        calls[3].cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        assert b"2" not in gate.waiting


@pytest.mark.parametrize("end", [Peer.close, Peer.reset])
async def test_a_broken_connection_makes_room(narrow: DirectTransport, end: object) -> None:
    """When a call fails with its connection, a call that waits makes a new one."""
    gate = Gate()
    async with ScriptedUpstream(gate.script) as upstream:
        calls = [asyncio.ensure_future(opened(narrow, upstream, b"%d" % n)) for n in range(3)]
        await gate.arrived(b"0", b"1")
        end(upstream.peers[0])  # type: ignore[operator]
        await until(lambda: b"2" in gate.waiting)

        assert len(upstream.peers) == 3
        for body in (b"0", b"1", b"2"):
            gate.answer(body)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, UpstreamUnreachable) for result in results) == 1


async def test_an_answer_given_up_makes_room(narrow: DirectTransport) -> None:
    """`close` in the middle of a stream lets a waiting call in."""
    async with ScriptedUpstream(answering(chunked_head(), chunk(b"x"))) as upstream:
        first, second = [await opened(narrow, upstream, b"%d" % n) for n in range(2)]
        third = asyncio.ensure_future(opened(narrow, upstream, b"2"))
        await asyncio.sleep(0.01)
        assert not third.done()
        first.close()
        assert await (await third).read() == b"x"
        second.close()


async def test_a_failed_connection_gives_its_room_back() -> None:
    """Refused connections never use up the bound."""
    async with ScriptedUpstream(answering()) as upstream:
        url = upstream.url
    transport = DirectTransport(connections_per_origin_max=1)
    for _ in range(5):
        with pytest.raises(UpstreamUnreachable):
            await transport.open(a_request(url), limits())
    await transport.close()


async def test_room_granted_to_a_call_that_was_given_up_is_passed_on() -> None:
    """Between the grant and the call's next step it may be cancelled; the next in line goes on."""
    pool = await a_pool()
    assert pool.reserve()
    first, second = (asyncio.ensure_future(pool.wait(later(), 1)) for _ in range(2))
    await asyncio.sleep(0)
    pool.vacate()
    first.cancel()

    assert await second is None
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not pool.reserve()
    pool.vacate()
    assert pool.reserve()


async def test_a_connection_granted_to_a_call_that_was_given_up_is_passed_on() -> None:
    """The same where a connection became free; with nobody in line it goes to rest."""
    pool = await a_pool()
    connection = a_connection(pool)
    first, second = (asyncio.ensure_future(pool.wait(later(), 1)) for _ in range(2))
    await asyncio.sleep(0)
    pool.release(connection, 60)
    first.cancel()
    assert await second is connection

    third = asyncio.ensure_future(pool.wait(later(), 1))
    await asyncio.sleep(0)
    pool.release(connection, 60)
    third.cancel()
    await asyncio.gather(first, third, return_exceptions=True)
    assert pool.take() is connection


async def test_a_connection_lost_on_the_way_to_its_call_costs_no_place() -> None:
    """It ends between the grant and the call's next step: the call gets the room it leaves."""
    pool = await a_pool()
    connection = a_connection(pool)
    first = asyncio.ensure_future(pool.wait(later(), 1))
    await asyncio.sleep(0)
    pool.release(connection, 60)
    connection.drop()

    assert await first is None
    assert not pool.reserve()


async def test_a_call_that_lost_its_connection_stays_ahead() -> None:
    """With others in line it waits on, but in front of all."""
    pool = await a_pool()
    connection = a_connection(pool)
    first, second, third = (asyncio.ensure_future(pool.wait(later(), 1)) for _ in range(3))
    await asyncio.sleep(0)
    pool.release(connection, 60)
    connection.drop()  # Its room goes to the second call.
    assert await second is None
    assert not first.done()
    pool.vacate()

    assert await first is None
    assert not third.done()
    third.cancel()


async def test_waits_that_ended_are_forgotten() -> None:
    """Neither a wait that ran out of time nor one that was cancelled stays in line."""
    pool = await a_pool()
    connection = a_connection(pool)
    soon = asyncio.get_running_loop().time() + 0.02
    late = [asyncio.ensure_future(pool.wait(soon, 20)) for _ in range(5)]
    given_up = asyncio.ensure_future(pool.wait(later(), 1))
    await asyncio.sleep(0)
    assert len(pool._waits) == 6
    given_up.cancel()
    results = await asyncio.gather(*late, given_up, return_exceptions=True)

    assert [type(result) for result in results] == [UpstreamTimeout] * 5 + [asyncio.CancelledError]
    assert len(pool._waits) == 0
    connection.drop()


async def test_closing_waits_for_the_sockets() -> None:
    """When `close` returns, each socket is closed, those at rest and those in use."""
    transport = DirectTransport()
    async with (
        ScriptedUpstream(answering(answer())) as whole,
        ScriptedUpstream(answering(chunked_head())) as streamed,
    ):
        await read_all(await transport.open(a_request(whole.url), limits()))
        await transport.open(a_request(streamed.url), limits())
        live = [connection for pool in transport._pools.values() for connection in pool._live]
        assert len(live) == 2
        await transport.close()

        assert [connection._transport for connection in live] == [None, None]


async def test_closing_ends_all_waits(narrow: DirectTransport) -> None:
    """Calls in line fail with a typed failure, and no new connection is made for them."""
    gate = Gate()
    async with ScriptedUpstream(gate.script) as upstream:
        calls = [asyncio.ensure_future(opened(narrow, upstream, b"%d" % n)) for n in range(5)]
        await gate.arrived(b"0", b"1")
        await narrow.close()
        results = await asyncio.gather(*calls, return_exceptions=True)

        assert all(isinstance(result, UpstreamUnreachable) for result in results)
        assert len(upstream.peers) == 2


async def test_a_call_granted_a_connection_while_all_closes_makes_none() -> None:
    """The pool closes between the grant and the call's next step: the call fails."""
    pool = await a_pool()
    connection = a_connection(pool)
    first = asyncio.ensure_future(pool.wait(later(), 1))
    await asyncio.sleep(0)
    pool.release(connection, 60)
    await pool.close()

    with pytest.raises(UpstreamUnreachable, match="closed"):
        await first
