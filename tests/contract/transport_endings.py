"""How a call may end before its answer does: time limits, letting go, closing.

Part of the contract of every transport; see `transport_contract`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from everyturn.errors import UpstreamStreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from everyturn.transport.base import Transport, UpstreamRequest
from tests.support.scripted_upstream import (
    Peer,
    ScriptedUpstream,
    a_request,
    answering,
    chunk,
    chunked_head,
    limits,
    read_all,
    until,
)


class EndingsContract:
    """See the module docstring."""

    def request_to(
        self, upstream: ScriptedUpstream, *, query: str = "", **more: Any
    ) -> UpstreamRequest:
        """A request that reaches `upstream`."""
        return a_request(upstream.url + query, **more)

    # ------------------------------------------------------------------------------ time limits

    @pytest.mark.parametrize(
        "start",
        [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"],
        ids=["silence", "half-a-head", "interim"],
    )
    async def test_the_answer_must_begin_in_time(self, transport: Transport, start: bytes) -> None:
        """Without a complete head in time the call ends; an interim answer does not count."""
        async with ScriptedUpstream(answering(start)) as upstream:
            with pytest.raises(UpstreamTimeout, match=r"`first_byte_ms` is: 100$"):
                await transport.open(self.request_to(upstream), limits(first_byte_ms=100))
            await upstream.peers[0].gone()

    async def test_a_stream_must_not_pause_too_long(self, transport: Transport) -> None:
        """Silence inside the body ends it; each piece that comes starts the time anew."""

        async def script(peer: Peer) -> None:
            await peer.receive()
            peer.send(chunked_head())
            for _ in range(5):
                await asyncio.sleep(0.1)
                peer.send(chunk(b"x"))

        async with ScriptedUpstream(script) as upstream:
            response = await transport.open(self.request_to(upstream), limits(idle_ms=300))
            for _ in range(5):
                assert await response.read() == b"x"
            for _ in range(2):
                with pytest.raises(UpstreamTimeout, match=r"`idle_ms` is: 300$"):
                    await response.read()
            await upstream.peers[0].gone()

    async def test_only_waiting_is_timed(self, transport: Transport) -> None:
        """A reader that takes its time between two reads meets no limit but the total."""
        async with ScriptedUpstream(answering(chunked_head() + chunk(b"x"))) as upstream:
            timeouts = limits(first_byte_ms=200, idle_ms=200)
            response = await transport.open(self.request_to(upstream), timeouts)
            await asyncio.sleep(0.4)
            assert await response.read() == b"x"
            reading = asyncio.ensure_future(response.read())
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.sleep(0.4)
            reading = asyncio.ensure_future(response.read())
            await asyncio.sleep(0.05)
            assert not reading.done()
            with pytest.raises(UpstreamTimeout, match="idle_ms"):
                await reading

    async def test_a_call_must_end_in_time(self, transport: Transport) -> None:
        """A stream that never pauses is still ended by the total limit."""

        async def script(peer: Peer) -> None:
            await peer.receive()
            peer.send(chunked_head())
            while not peer.is_gone:
                peer.send(chunk(b"x"))
                await asyncio.sleep(0.01)

        async with ScriptedUpstream(script) as upstream:
            response = await transport.open(self.request_to(upstream), limits(total_ms=200))
            with pytest.raises(UpstreamTimeout, match=r"`total_ms` is: 200$"):
                await read_all(response)
            await upstream.peers[0].gone()

    async def test_the_total_limit_holds_for_the_head_too(self, transport: Transport) -> None:
        """The shorter limit wins and is the one that is named."""
        async with ScriptedUpstream(answering()) as upstream:
            with pytest.raises(UpstreamTimeout, match=r"`total_ms` is: 100$"):
                await transport.open(self.request_to(upstream), limits(total_ms=100))

    # ------------------------------------------------------------------------------ letting go

    async def test_giving_up_an_answer_is_noticed(self, transport: Transport) -> None:
        """`close` before the end closes the connection within a second; twice is harmless."""
        async with ScriptedUpstream(answering(chunked_head(), chunk(b"x"))) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            await response.read()
            response.close()
            response.close()
            await upstream.peers[0].gone()
            with pytest.raises(UpstreamStreamIncomplete):
                await response.read()

    async def test_giving_up_drops_what_was_not_read(self, transport: Transport) -> None:
        """After `close` there is nothing to read, not even what had arrived."""
        async with ScriptedUpstream(answering(chunked_head() + chunk(b"x"))) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            await asyncio.sleep(0.05)
            response.close()
            with pytest.raises(UpstreamStreamIncomplete):
                await response.read()

    async def test_giving_up_wakes_the_reader(self, transport: Transport) -> None:
        """A read that waits while the answer is closed ends with a failure."""
        async with ScriptedUpstream(answering(chunked_head())) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            reading = asyncio.ensure_future(response.read())
            await asyncio.sleep(0)
            response.close()
            with pytest.raises(UpstreamStreamIncomplete):
                await reading

    async def test_cancelling_a_call_is_noticed(self, transport: Transport) -> None:
        """A task cancelled while it waits for the head closes the connection within a second."""
        async with ScriptedUpstream(answering()) as upstream:
            opening = asyncio.ensure_future(transport.open(self.request_to(upstream), limits()))
            await until(lambda: bool(upstream.requests))
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await upstream.peers[0].gone()

    async def test_a_cancelled_read_loses_nothing(self, transport: Transport) -> None:
        """After a cancelled read the next one gets what comes."""
        go_on = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.receive()
            peer.send(chunked_head())
            await go_on.wait()
            peer.send(chunk(b"x") + chunk(b""))

        async with ScriptedUpstream(script) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            reading = asyncio.ensure_future(response.read())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            go_on.set()
            assert await read_all(response) == b"x"

    async def test_a_slow_reader_slows_the_provider(self, transport: Transport) -> None:
        """Unread bytes are bounded: the provider cannot send on, and loses nothing."""
        sent = 0
        piece = bytes(range(256)) * 256

        async def script(peer: Peer) -> None:
            nonlocal sent
            await peer.receive()
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * 800))
            for _ in range(800):
                peer.send(piece)
                sent += len(piece)
                await peer.drain()

        async with ScriptedUpstream(script) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.1)
            assert sent < 24_000_000, "what the system itself buffers for a socket is far less"
            received = await read_all(response)

        assert received == piece * 800

    async def test_closing_the_transport_ends_what_is_going_on(self, transport: Transport) -> None:
        """Calls that wait for a head are unreachable, answers are incomplete, later calls fail."""
        pending = re.compile("closed")
        async with ScriptedUpstream(answering(chunked_head())) as upstream:
            response = await transport.open(self.request_to(upstream), limits())
            reading = asyncio.ensure_future(response.read())
            async with ScriptedUpstream(answering()) as silent:
                opening = asyncio.ensure_future(transport.open(self.request_to(silent), limits()))
                await until(lambda: bool(silent.requests))
                await transport.close()
                with pytest.raises(UpstreamUnreachable, match=pending):
                    await opening
            with pytest.raises(UpstreamStreamIncomplete, match=pending):
                await reading
            with pytest.raises(UpstreamUnreachable, match=pending):
                await transport.open(self.request_to(upstream), limits())
            await upstream.peers[0].gone()
            await transport.close()
