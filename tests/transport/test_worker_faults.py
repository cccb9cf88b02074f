"""What breaks under a worker link: lost, replaced, stalled, late; and what is then said."""

from __future__ import annotations

import asyncio

import pytest

from everyturn.errors import UpstreamTimeout, WorkerLost, WorkerUnavailable
from everyturn.link.messages import Fail
from everyturn.link.session import Role, Session
from tests.support.faulty_wire import a_faulty_wire
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
from tests.support.workers import URL, a_hub, got, target


async def test_a_lost_link_is_told_and_the_call_is_not_run_again() -> None:
    """What arrived is handed out, then `worker_lost`; the server noticed and was asked once."""
    async with (
        a_hub() as hub,
        ScriptedUpstream(answering(chunked_head() + chunk(b"some"))) as upstream,
        ScriptedUpstream(answering()) as silent,
    ):
        await hub.start({**target(upstream), "silent": target(silent)["llama"]})
        response = await hub.transport().open(a_request(URL), limits())
        pending = asyncio.create_task(
            hub.transport().open(a_request("worker://silent/chat/completions"), limits())
        )
        await until(lambda: bool(silent.requests))
        await until(lambda: bool(response._parts))
        hub.runs["box"].cancel()
        with pytest.raises(WorkerLost):
            await pending
        assert await response.read() == b"some"
        for _ in range(2):
            with pytest.raises(WorkerLost):
                await response.read()
        for server in (upstream, silent):
            await server.peers[0].gone()
        hub.runs.clear()
        assert hub.workers.names == ()

        await hub.start(target(upstream))
        assert len(upstream.requests) == len(silent.requests) == 1


async def test_the_same_worker_connecting_anew_replaces_its_link() -> None:
    """The old link is ended with the reason, its calls are lost, the new one serves."""
    async with a_hub() as hub, ScriptedUpstream(answering()) as silent:
        await hub.start(target(silent))
        pending = asyncio.create_task(got(hub))
        await until(lambda: bool(silent.requests))
        old = hub.runs["box"]
        async with ScriptedUpstream(answering(answer(b"new"))) as upstream:
            await hub.start(target(upstream))
            ending = await old
            with pytest.raises(WorkerLost):
                await pending
            assert await got(hub) == b"new"

    assert (ending.how, ending.code) == ("bye", "replaced")


async def test_a_late_answer_belongs_to_nobody() -> None:
    """An answer that comes after its call was given up does not reach the next call."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.receive()
            if request.body == b"first":
                peer.send(chunked_head() + chunk(b"late") * 1000)
                go_on.set()
            else:
                peer.send(answer(b"mine"))

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        await hub.start(target(upstream))
        response = await hub.transport().open(a_request(URL, b"first"), limits())
        await go_on.wait()
        response.close()
        assert await got(hub, body=b"second") == b"mine"
        await upstream.peers[0].gone()


async def test_a_worker_that_stalls_is_given_up() -> None:
    """Where nothing comes over the link, the gateway's own limits end the call."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(chunked_head() + chunk(b"x"))

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        await hub.start(target(upstream))
        response = await hub.transport().open(a_request(URL), limits(idle_ms=100))
        assert await response.read() == b"x"
        with pytest.raises(UpstreamTimeout, match="`idle_ms` is: 100"):
            await response.read()
        await upstream.peers[0].gone()


async def test_a_stalled_link_gathers_no_requests() -> None:
    """However many come and go while nothing passes, what waits for the link is bounded."""
    async with (
        a_hub() as hub,
        a_faulty_wire(hub.port) as wire,
        ScriptedUpstream(answering(answer(b"on"))) as upstream,
    ):
        await hub.start(target(upstream), port=wire.port)
        link = hub.workers.get("box")
        assert link is not None
        wire.black_hole()
        said: set[str] = set()
        for _ in range(60):
            try:
                response = await hub.transport().open(
                    a_request(URL, bytes(500_000)), limits(connect_ms=20, total_ms=20)
                )
                response.close()
            except (UpstreamTimeout, WorkerUnavailable) as failure:
                said.add(failure.code)
        assert link.end._queued_bytes < 2_000_000
        assert said == {"upstream_timeout", "worker_unavailable"}
        wire.heal()
        assert await got(hub) == b"on"


async def test_a_call_given_up_while_it_is_declined_goes_to_nobody_else() -> None:
    """Both at once: the giving up counts, and no second worker is asked."""
    async with a_hub() as hub, ScriptedUpstream(answering()) as silent:
        await hub.start(target(silent))
        link = hub.workers.get("box")
        assert link is not None
        call = asyncio.create_task(hub.transport().open(a_request(URL), limits(total_ms=1000)))
        await until(lambda: bool(silent.requests))
        link.on_message(Fail(call=1, code="draining", message="", hint="", upstream_us=0), b"")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert len(silent.requests) == 1


def hasty(role: Role) -> Session:
    """A session that loses a silent peer within half a second."""
    return Session(role, heartbeat_s=0.1, lost_s=0.5)


@pytest.mark.parametrize("fault", ["cut", "black_hole"])
async def test_a_link_that_breaks_ends_every_call_at_both_ends(fault: str) -> None:
    """Reset or silent, in the middle of streams: each call is lost, each server is let go."""
    async with (
        a_hub() as hub,
        a_faulty_wire(hub.port) as wire,
        ScriptedUpstream(answering(chunked_head() + chunk(b"x"))) as upstream,
    ):
        hub.gateway_session = lambda: hasty("gateway")
        await hub.start(target(upstream), port=wire.port, session=hasty("worker"))
        responses = [await hub.transport().open(a_request(URL), limits()) for _ in range(5)]
        for response in responses:
            assert await response.read() == b"x"
        getattr(wire, fault)()
        for response in responses:
            with pytest.raises(WorkerLost):
                await response.read()
        for peer in upstream.peers:
            await peer.gone(within_s=2)
        ending = await hub.runs.pop("box")
        assert ending.how == "lost"
        await until(lambda: bool(hub.endings))
        assert hub.endings[0].how == "lost"
        assert hub.workers.names == ()
        with pytest.raises(WorkerUnavailable):
            await got(hub)

    assert len(upstream.requests) == 5


async def test_a_short_stall_loses_nothing() -> None:
    """A link that hangs for less than the limit goes on where it was."""
    body = bytes(range(256)) * 4000
    async with (
        a_hub() as hub,
        a_faulty_wire(hub.port) as wire,
        ScriptedUpstream(answering(answer(body))) as upstream,
    ):
        hub.gateway_session = lambda: Session("gateway", heartbeat_s=0.1, lost_s=5)
        await hub.start(
            target(upstream),
            port=wire.port,
            session=Session("worker", heartbeat_s=0.1, lost_s=5),
        )
        response = await hub.transport().open(a_request(URL), limits())
        wire.black_hole()
        reading = asyncio.create_task(read_all(response))
        await asyncio.sleep(0.3)
        assert not reading.done()
        wire.heal()
        assert await reading == body
