"""Calls over a worker link: who takes them, what breaks, and what is never done twice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from everyturn.errors import (
    InternalError,
    InvalidValue,
    RequestTooLarge,
    UpstreamStreamIncomplete,
    UpstreamUnreachable,
    WorkerUnavailable,
)
from everyturn.link.session import WINDOW_BYTES, Session
from everyturn.link.versions import VERSIONS
from everyturn.transport.base import Journey, UpstreamRequest
from tests.support.linked import OLD
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

# ---------------------------------------------------------------------------------- who takes it


async def test_without_a_worker_nobody_is_asked() -> None:
    """No worker, one that is not named, and one that does not allow the target: unavailable."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer())) as upstream:
        with pytest.raises(WorkerUnavailable, match="no worker of this model is connected"):
            await got(hub)
        await hub.start(target(upstream), name="other")
        with pytest.raises(WorkerUnavailable, match="no worker of this model is connected"):
            await got(hub)
        await hub.start({"else": "http://127.0.0.1:1/v1"})
        with pytest.raises(WorkerUnavailable, match="no connected worker of this model takes"):
            await got(hub)

    assert upstream.requests == []


async def test_the_least_busy_worker_takes_the_call() -> None:
    """Calls spread over the workers; among equals the one named first is taken."""
    hold = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.receive()
        await hold.wait()
        peer.send(answer())

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        for name in ("a", "b"):
            await hub.start(target(upstream), name=name)
        journeys = [Journey() for _ in range(4)]
        transport = hub.transport("b", "a")
        calls = [
            asyncio.create_task(transport.open(a_request(URL, journey=journey), limits()))
            for journey in journeys
        ]
        await until(lambda: len(upstream.requests) == 4)
        hold.set()
        for call in calls:
            await read_all(await call)

    assert [journey.worker for journey in journeys] == ["b", "a", "b", "a"]


async def test_a_full_worker_makes_calls_wait() -> None:
    """No worker runs more than it said; a waiting call goes when there is room, or is told."""
    open_now = most = 0

    async def script(peer: Peer) -> None:
        nonlocal open_now, most
        while True:
            await peer.receive()
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(0.02)
            open_now -= 1
            peer.send(answer())

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        await hub.start(target(upstream), calls_max=2)
        journeys = [Journey() for _ in range(6)]
        await asyncio.gather(*(got(hub, journey=journey) for journey in journeys))
        assert most == 2
        waited = [journey.queue_ms or 0.0 for journey in journeys]
        assert sum(wait >= 15 for wait in waited) >= 4

        async with ScriptedUpstream(answering()) as silent:
            await hub.start(target(silent), name="busy", calls_max=1)
            transport = hub.transport("busy")
            first = asyncio.create_task(transport.open(a_request(URL), limits()))
            await until(lambda: bool(silent.requests))
            with pytest.raises(WorkerUnavailable, match="`connect_ms` is: 50"):
                await transport.open(a_request(URL), limits(connect_ms=50))
            first.cancel()


async def test_a_draining_worker_ends_what_it_has_and_takes_nothing_new() -> None:
    """The other one gets new calls, also one that crossed the word."""
    hold = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.receive()
        await hold.wait()
        peer.send(answer(b"done"))

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        first = await hub.start(target(upstream), name="a")
        await hub.start(target(upstream), name="b")
        old = asyncio.create_task(got(hub, "a", "b"))
        await until(lambda: len(upstream.requests) == 1)
        draining = asyncio.create_task(first.drain(5))
        await asyncio.sleep(0)
        crossing = Journey()
        new = asyncio.create_task(got(hub, "a", journey=crossing))
        with pytest.raises(WorkerUnavailable):
            await new
        journey = Journey()
        other = asyncio.create_task(got(hub, "a", "b", journey=journey))
        await until(lambda: len(upstream.requests) == 2)
        hold.set()
        assert await old == await other == b"done"
        await draining
        ending = await hub.runs["a"]

    assert journey.worker == "b"
    assert ending.how == "closed"
    assert len(upstream.requests) == 2


# ----------------------------------------------------------------------------- what may be asked


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("POST", "http://127.0.0.1:1/v1/chat/completions"),
        ("POST", "worker://llama/v1/embeddings"),
        ("POST", "worker://llama/../admin"),
        ("GET", "worker://llama/chat/completions"),
        ("DELETE", "worker://llama/models"),
        ("POST", "worker://llama/chat/completions#a"),
    ],
)
async def test_only_known_operations_can_be_asked(method: str, url: str) -> None:
    """Anything else is refused before a word is said over the link."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer())) as upstream:
        await hub.start(target(upstream))
        with pytest.raises(InvalidValue):
            await hub.transport().open(a_request(url, method=method), limits())
        request = UpstreamRequest(url="worker://llama/models", method="GET")
        assert await read_all(await hub.transport().open(request, limits())) == b"{}"

    assert [seen.line for seen in upstream.requests] == ["GET /v1/models HTTP/1.1"]


@pytest.mark.parametrize(
    "more", [{"headers": (("x-a", "y" * 70_000),)}, {"url": f"{URL}?a={'b' * 20_000}"}]
)
async def test_a_call_too_long_for_the_link_ends_no_link(more: dict[str, Any]) -> None:
    """It is refused before it is sent; other calls of the worker go on."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer(b"ok"))) as upstream:
        await hub.start(target(upstream))
        asked = {"url": URL, **more}
        with pytest.raises(InvalidValue, match="longer than"):
            await hub.transport().open(a_request(**asked), limits())
        assert await got(hub) == b"ok"


async def test_the_workers_own_list_decides() -> None:
    """A target that the worker took off its list is not called, though the gateway asks."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer())) as upstream:
        targets = target(upstream)
        await hub.start(targets)
        targets.clear()
        with pytest.raises(WorkerUnavailable, match="does not allow"):
            await got(hub)

    assert upstream.requests == []


async def test_an_older_worker_is_served_and_what_it_lacks_fails_closed() -> None:
    """A worker of an older version runs what it can; nothing is left out so that it may pass."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer(b"ok"))) as upstream:
        hub.gateway_session = lambda: Session("gateway", versions=(OLD, *VERSIONS))
        await hub.start(target(upstream), session=Session("worker", versions=(OLD,)))
        assert await got(hub) == b"ok"
        with pytest.raises(WorkerUnavailable, match="version 0 cannot carry query parameters"):
            await hub.transport().open(a_request(f"{URL}?a=1"), limits())
        assert await got(hub) == b"ok"

    assert len(upstream.requests) == 2


async def test_no_common_version_is_said_at_both_ends() -> None:
    """Both learn why, and no call is possible."""
    async with a_hub() as hub:
        await hub.start({}, session=Session("worker", versions=(OLD,)), is_awaited=False)
        ending = await hub.runs["box"]
        await until(lambda: bool(hub.endings))

    assert (ending.how, ending.code) == ("bye", "protocol_version_unsupported")
    assert (hub.endings[0].how, hub.endings[0].code) == ("fault", "protocol_version_unsupported")


# ---------------------------------------------------------------------------------- the worker


async def test_a_request_over_the_workers_limit_is_refused() -> None:
    """The worker holds no more than it says; its server is not asked."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer())) as upstream:
        await hub.start(target(upstream), body_bytes_max=1000)
        with pytest.raises(RequestTooLarge, match="at most 1000 bytes"):
            await got(hub, body=bytes(2_000_000))
        assert await got(hub, body=b"small") == b"{}"

    assert len(upstream.requests) == 1


async def test_a_server_that_is_down_is_unreachable() -> None:
    """The reason comes through, the address does not."""
    async with a_hub() as hub:
        async with ScriptedUpstream(answering()) as upstream:
            await hub.start(target(upstream))
        with pytest.raises(UpstreamUnreachable) as failure:
            await got(hub)

    assert str(upstream.port) not in failure.value.message


async def test_a_defect_of_the_worker_ends_one_call() -> None:
    """A target that is no URL is a defect; the link and other calls go on."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer(b"ok"))) as upstream:
        targets: dict[str, Any] = {**target(upstream), "bad": None}
        await hub.start(targets)
        targets["bad"] = 7
        with pytest.raises(InternalError):
            await hub.transport().open(a_request("worker://bad/chat/completions"), limits())
        assert await got(hub) == b"ok"


async def test_lines_hold_counts_and_ids_only() -> None:
    """What the worker tells of its calls holds no content, header or address."""
    trace = "0123456789abcdef0123456789abcdef"
    headers = (
        ("authorization", "Bearer sk-test-FAKE"),
        ("traceparent", f"00-{trace}-0123456789abcdef-01"),
        ("x-request-id", "r1"),
    )
    async with a_hub() as hub, ScriptedUpstream(answering(answer(b"the answer"))) as upstream:
        await hub.start(target(upstream))
        await got(hub, body=b"the question", headers=headers)
        await until(lambda: any(line["event"] == "worker.call" for line in hub.lines))

    text = str(hub.lines)
    for secret in ("question", "answer", "FAKE", str(upstream.port), "127.0.0.1"):
        assert secret not in text
    (line,) = [line for line in hub.lines if line["event"] == "worker.call"]
    assert (line["call"], line["error_code"]) == (1, None)
    assert (line["trace_id"], line["request_id"]) == (trace, "r1")


async def test_a_rotated_credential_is_stored_and_confirmed() -> None:
    """The worker keeps it before it says so."""
    async with a_hub() as hub:
        await hub.start({})
        link = hub.workers.get("box")
        assert link is not None
        link.rotate("obviously-fake-credential")
        async with asyncio.timeout(5):
            await link.has_rotated.wait()

    assert hub.credentials == ["obviously-fake-credential"]
    assert "obviously-fake" not in str(hub.lines)


# ------------------------------------------------------------------------------------- bounds


async def test_a_slow_reader_bounds_both_sides_and_others_go_on() -> None:
    """One answer that nobody reads holds a window at the gateway, and delays no other call."""
    piece = bytes(64 * 1024)

    async def script(peer: Peer) -> None:
        while (await peer.receive()).body == b"quick":
            peer.send(answer(b"quick"))
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * 400))
        for _ in range(400):
            peer.send(piece)
            await peer.drain()

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        await hub.start(target(upstream))
        response = await hub.transport().open(a_request(URL), limits())
        await until(lambda: sum(map(len, response._parts)) == WINDOW_BYTES)
        for _ in range(20):
            assert await got(hub, body=b"quick") == b"quick"
        assert sum(map(len, response._parts)) == WINDOW_BYTES
        assert await read_all(response) == piece * 400


async def test_nothing_is_left_of_calls_that_are_over() -> None:
    """Answered, failed, given up or declined: transport, link and worker forget them."""
    async with a_hub() as hub, ScriptedUpstream(answering(answer(b"ok"))) as upstream:
        relay = await hub.start({**target(upstream), "down": "http://127.0.0.1:1/v1"})
        transport = hub.transport()
        link = hub.workers.get("box")
        assert link is not None
        for _ in range(20):
            await read_all(await transport.open(a_request(URL), limits()))
        (await transport.open(a_request(URL), limits())).close()
        with pytest.raises(UpstreamUnreachable):
            await transport.open(a_request("worker://down/chat/completions"), limits())
        await until(lambda: not relay._calls)

    assert not transport._open
    assert link.busy == 0


async def test_the_journey_is_told() -> None:
    """Worker, time in the queue and time on the way, also of a call that failed."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        await asyncio.sleep(0.2)
        peer.send(chunked_head() + chunk(b"x"))
        peer.close()

    async with a_hub() as hub, ScriptedUpstream(script) as upstream:
        await hub.start(target(upstream))
        journey = Journey()
        began = time.monotonic()
        with pytest.raises(UpstreamStreamIncomplete, match="closed inside the body"):
            await got(hub, journey=journey)
        passed_ms = (time.monotonic() - began) * 1000

    assert journey.worker == "box"
    assert journey.queue_ms is not None
    assert journey.link_ms is not None
    assert 0 <= journey.queue_ms + journey.link_ms <= passed_ms - 190
