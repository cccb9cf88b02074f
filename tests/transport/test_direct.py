"""The direct transport as a whole: what it is made with, what it keeps, when it ends."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from everyturn.errors import InvalidValue, UpstreamUnreachable
from everyturn.transport.base import Transport
from everyturn.transport.direct import (
    CONNECTIONS_PER_ORIGIN_MAX,
    IDLE_EXPIRY_S,
    TARGETS_MAX,
    DirectTransport,
    check_verifies,
)
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


def test_it_is_a_transport() -> None:
    """The seam's type holds it."""
    transport: Transport = DirectTransport()

    assert transport is not None


def test_the_defaults_suit_servers_that_close_after_five_seconds() -> None:
    """Our own connections go a second earlier, and a thousand streams fit."""
    assert IDLE_EXPIRY_S < 5
    assert CONNECTIONS_PER_ORIGIN_MAX >= 1000


def test_a_bound_must_let_something_through() -> None:
    """No connection at all is a mistake."""
    with pytest.raises(ValueError, match="connections_per_origin_max"):
        DirectTransport(connections_per_origin_max=0)


def test_the_default_context_verifies() -> None:
    """What the system gives is accepted."""
    check_verifies(ssl.create_default_context())


async def test_an_unused_transport_closes() -> None:
    """Nothing was opened, nothing is waited for."""
    transport = DirectTransport()
    await transport.close()
    await transport.close()
    with pytest.raises(UpstreamUnreachable, match="closed"):
        await transport.open(a_request("http://127.0.0.1:1/"), limits())


def test_one_transport_belongs_to_one_loop() -> None:
    """A second loop would wait on timers and sockets of the first: a clear error instead."""
    transport = DirectTransport()

    async def call() -> None:
        async with ScriptedUpstream(answering(answer())) as upstream:
            await read_all(await transport.open(a_request(upstream.url), limits()))

    async def call_and_close() -> None:
        await call()
        await transport.close()

    asyncio.run(call_and_close())
    with pytest.raises(RuntimeError, match="belongs to the event loop"):
        asyncio.run(call())


async def test_parsed_urls_are_bounded() -> None:
    """More URLs than are kept still work, over the same connection."""
    transport = DirectTransport()
    async with ScriptedUpstream(answering(answer(b"x"))) as upstream:
        for number in range(TARGETS_MAX + 10):
            request = a_request(f"{upstream.url}?n={number}")
            assert await read_all(await transport.open(request, limits())) == b"x"
        assert len(transport._targets) <= TARGETS_MAX
        assert len(upstream.peers) == 1
        await transport.close()


async def test_a_407_without_a_proxy_is_the_providers_answer() -> None:
    """Only a proxy's own refusal is turned into a failure."""
    transport = DirectTransport()
    async with ScriptedUpstream(answering(answer(b"x", status="407 No"))) as upstream:
        response = await transport.open(a_request(upstream.url), limits())
        assert (response.status, await read_all(response)) == (407, b"x")
        await transport.close()


async def test_a_url_that_cannot_be_sent_takes_no_room() -> None:
    """A refusal happens before a connection is asked for."""
    transport = DirectTransport(connections_per_origin_max=1)
    async with ScriptedUpstream(answering(answer())) as upstream:
        for _ in range(3):
            with pytest.raises(InvalidValue):
                await transport.open(a_request(upstream.url, headers=(("x", "\n"),)), limits())
            with pytest.raises(InvalidValue):
                await transport.open(a_request(upstream.url + "#x"), limits())
        await read_all(await transport.open(a_request(upstream.url), limits()))
        await transport.close()


async def test_calls_that_are_given_up_at_random_leave_no_connection_behind() -> None:
    """Many calls, each cancelled at another moment: afterwards the bound is free again."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.receive()
            peer.send(chunked_head())
            for _ in range(3):
                await asyncio.sleep(0.001)
                peer.send(chunk(b"x"))
            peer.send(chunk(b""))

    transport = DirectTransport(connections_per_origin_max=4)
    async with ScriptedUpstream(script) as upstream:

        async def call() -> bytes:
            response = await transport.open(a_request(upstream.url), limits())
            try:
                return await read_all(response)
            finally:
                response.close()

        calls = [asyncio.ensure_future(call()) for _ in range(60)]
        for number, one in enumerate(calls):
            if number % 3:
                await asyncio.sleep(0.0005 * (number % 5))
                one.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {result for result in results if isinstance(result, bytes)} == {b"xxx"}
        assert await asyncio.gather(*(call() for _ in range(8))) == [b"xxx"] * 8

        await transport.close()
        await until(lambda: all(peer.is_gone for peer in upstream.peers))
