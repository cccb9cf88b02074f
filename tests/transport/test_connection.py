"""One connection: how answers are framed, what makes it unfit for a second call, what it holds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from everyturn.errors import (
    InternalError,
    TranslationError,
    UpstreamStreamIncomplete,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from everyturn.transport.connection import (
    BUFFER_BYTES_MAX,
    Connection,
    HttpParserCallbackError,
    parser_failure,
)
from everyturn.transport.deadlines import Deadlines
from everyturn.transport.direct import DirectTransport
from everyturn.transport.pool import OriginPool
from tests.support.quiet_socket import QuietSocket
from tests.support.scripted_upstream import (
    Peer,
    ScriptedUpstream,
    a_request,
    answer,
    answering,
    answering_once,
    chunk,
    chunked_head,
    limits,
    read_all,
    until,
)

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
STREAM = chunked_head() + chunk(b"ab\r\n") + chunk(b"")


@pytest_asyncio.fixture
async def transport() -> AsyncIterator[DirectTransport]:
    """A transport without proxy, closed at the end."""
    transport = DirectTransport()
    yield transport
    await transport.close()


async def call(transport: DirectTransport, upstream: ScriptedUpstream, **more: int) -> bytes:
    """One whole call: the body of its answer."""
    return await read_all(await transport.open(a_request(upstream.url), limits(**more)))


# --------------------------------------------------------------------------------- being used again


@pytest.mark.parametrize(
    "raw",
    [
        answer(b"x"),
        answer(b"x\r\n"),
        answer(b"x\n\r\n\r\n"),
        answer(b"\r\n\r\n"),
        answer(b""),
        STREAM,
        chunked_head() + b"1;name=value;other\r\nx\r\n0;last\r\nx-trailer: 1\r\nx-other: 2\r\n\r\n",
        NO_CONTENT,
        b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + answer(b"x"),
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx",
        answer(b"x", headers=("connection: upgrade", "upgrade: h2c")),
    ],
    ids=[
        "length", "line-end", "blank-lines", "only-blank-lines", "empty", "chunked",
        "extensions-and-trailers", "no-content", "not-modified", "interim", "http-1.0",
        "offers-upgrade",
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "by-byte"])
async def test_a_complete_answer_leaves_the_connection_usable(
    transport: DirectTransport, raw: bytes, is_split: bool
) -> None:
    """Whatever the framing and however the network cut it, the next call uses the connection."""
    pieces = [raw[index : index + 1] for index in range(len(raw))] if is_split else [raw]
    async with ScriptedUpstream(answering(*pieces)) as upstream:
        first = await call(transport, upstream)
        second = await call(transport, upstream)

        assert first == second
        assert len(upstream.peers) == 1


@pytest.mark.parametrize(
    "raw",
    [
        answer(b"x", headers=("connection: close",)),
        answer(b"x", headers=("keep-alive: timeout=0",)),
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx",
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\n\r\n",
        answer(b"x") + b"y",
        answer(b"x") + answer(b"y"),
        answer(b"x") + b"\r\n",
        answer(b"x\r\n") + b"\r\n",
        answer(b"\n\r\n") + b"\r\n",
        answer(b"x", headers=("connection: close",)) + b"HTTP",
        STREAM + b"\r\n",
        STREAM + b"\n",
        STREAM + b"0\r\n\r\n",
        NO_CONTENT + b"\r\n",
        NO_CONTENT + b"x",
        answer(b"") + b"\r\n",
    ],
)
async def test_an_answer_with_a_flaw_is_the_last_on_its_connection(
    transport: DirectTransport, raw: bytes
) -> None:
    """Bytes after the end, or an end that was announced: the answer is good, then it is over."""
    async with ScriptedUpstream(answering(raw)) as upstream:
        body = await call(transport, upstream)
        await upstream.peers[0].gone()
        assert await call(transport, upstream) == body

        assert body in (b"x", b"x\r\n", b"\n\r\n", b"ab\r\n", b"")
        assert len(upstream.peers) == 2


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n"]
)
async def test_a_body_without_length_ends_with_its_connection(
    transport: DirectTransport, head: bytes
) -> None:
    """Where nothing else marks the end, the close is the legal one."""
    async with ScriptedUpstream(answering_once(head, b"one ", b"two")) as upstream:
        assert await call(transport, upstream) == b"one two"
        assert await call(transport, upstream) == b"one two"


async def test_the_end_is_told_again_and_again(transport: DirectTransport) -> None:
    """After the end each read returns nothing, and `close` keeps the connection."""
    async with ScriptedUpstream(answering(answer(b"x"))) as upstream:
        response = await transport.open(a_request(upstream.url), limits())
        assert await read_all(response) == b"x"
        assert await response.read() == b""
        response.close()
        await call(transport, upstream)

        assert len(upstream.peers) == 1


async def test_an_unread_answer_does_not_hold_its_connection(transport: DirectTransport) -> None:
    """Once the last byte is here another call may use the connection; the bytes stay readable."""
    async with ScriptedUpstream(answering(answer(b"x" * 1000))) as upstream:
        first = await transport.open(a_request(upstream.url), limits())
        second = await transport.open(a_request(upstream.url), limits())

        assert await read_all(second) == await read_all(first) == b"x" * 1000
        assert len(upstream.peers) == 1


async def test_an_early_answer_ends_the_connection(transport: DirectTransport) -> None:
    """A provider that answers before it took the whole request gets no second one on top."""

    async def script(peer: Peer) -> None:
        assert peer.transport is not None
        await peer.receive_bytes()
        peer.transport.pause_reading()
        peer.send(answer(b"too much", status="413 Too Large"))

    async with ScriptedUpstream(script) as upstream:
        request = a_request(upstream.url, b"x" * 40_000_000)
        response = await transport.open(request, limits())
        assert await read_all(response) == b"too much"
        upstream.peers[0].transport.resume_reading()
        await upstream.peers[0].gone()


# ---------------------------------------------------------------------------------- being closed on


async def test_a_connection_closed_at_rest_is_forgotten(transport: DirectTransport) -> None:
    """The provider closes between two calls: the second one does not notice."""
    async with ScriptedUpstream(answering(answer())) as upstream:
        await call(transport, upstream)
        for end in (Peer.close, Peer.reset):
            end(upstream.peers[-1])
            await upstream.peers[-1].gone()
            await asyncio.sleep(0.01)
            await call(transport, upstream)

        assert len(upstream.peers) == 3


async def test_a_close_the_loop_has_not_told_yet_is_seen(transport: DirectTransport) -> None:
    """A connection that ends in the very turn of the loop that takes it is not used."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    def accept_and_answer() -> socket.socket:
        accepted, _ = listener.accept()
        accepted.recv(65536)
        accepted.sendall(answer(b"x"))
        return accepted

    with listener:
        first = asyncio.to_thread(accept_and_answer)
        response, accepted = await asyncio.gather(transport.open(a_request(url), limits()), first)
        await read_all(response)
        accepted.close()
        # No await between the close and the next call: the loop cannot have told us.
        second = asyncio.to_thread(accept_and_answer)
        response, accepted = await asyncio.gather(transport.open(a_request(url), limits()), second)
        accepted.close()

        assert await read_all(response) == b"x"


async def test_a_request_is_never_sent_twice(transport: DirectTransport) -> None:
    """A kept connection that the provider closes on the second request fails that call."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(answer())
        await peer.receive()
        peer.close()

    async with ScriptedUpstream(script) as upstream:
        await call(transport, upstream)
        with pytest.raises(UpstreamUnreachable) as failure:
            await call(transport, upstream)

        assert "before the answer began, on a connection kept" in failure.value.message
        assert "not sent again" in failure.value.message
        assert len(upstream.requests) == 2
        assert len(upstream.peers) == 1


async def test_bytes_nobody_asked_for_end_a_connection_at_rest(transport: DirectTransport) -> None:
    """An answer without a request is thrown away with its connection."""
    async with ScriptedUpstream(answering(answer(b"x"))) as upstream:
        await call(transport, upstream)
        upstream.peers[0].send(answer(b"evil"))
        await upstream.peers[0].gone()

        assert await call(transport, upstream) == b"x"


async def test_a_provider_that_speaks_first_is_not_spoken_to(transport: DirectTransport) -> None:
    """A greeting instead of HTTP closes the connection and fails the call."""

    async def script(peer: Peer) -> None:
        peer.send(b"220 mail.example ESMTP\r\n")
        await peer.gone(5)

    async with ScriptedUpstream(script) as upstream:
        # The greeting may come before or after the request was written.
        with pytest.raises((UpstreamUnreachable, TranslationError)):
            await call(transport, upstream)
        await upstream.peers[0].gone()


# ------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "endless",
    [b"1;" + b"x" * 9000, b"0\r\nx-trailer: " + b"y" * 9000, b"0\r\n" + b"x: y\r\n" * 1500],
    ids=["extension", "trailer", "trailers"],
)
async def test_framing_without_content_is_bounded(
    transport: DirectTransport, endless: bytes
) -> None:
    """A chunk extension or a trailer that never ends is too large, after what came before."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(chunked_head() + chunk(b"good") + endless)
        while not peer.is_gone:
            peer.send(endless[3:])
            await asyncio.sleep(0.001)

    async with ScriptedUpstream(script) as upstream:
        response = await transport.open(a_request(upstream.url), limits())
        assert await response.read() == b"good"
        with pytest.raises(UpstreamTooLarge):
            await response.read()


async def test_unread_bytes_are_bounded(transport: DirectTransport) -> None:
    """With no reader the buffer holds its bound and one network read; reading empties it."""
    body = b"x" * 4_000_000
    async with ScriptedUpstream(answering(answer(body))) as upstream:
        response = await transport.open(a_request(upstream.url), limits())
        await until(lambda: response.size > BUFFER_BYTES_MAX)
        await asyncio.sleep(0.1)

        assert response.size <= 2 * BUFFER_BYTES_MAX
        assert len(await response.read()) <= 2 * BUFFER_BYTES_MAX
        assert response.size == 0


async def test_a_reader_that_never_comes_is_ended_by_the_total_limit(
    transport: DirectTransport,
) -> None:
    """A paused answer does not hold its connection for ever; what it held is still handed out."""
    async with ScriptedUpstream(answering(answer(b"x" * 4_000_000))) as upstream:
        response = await transport.open(a_request(upstream.url), limits(total_ms=200))
        await upstream.peers[0].gone()

        assert await response.read()
        with pytest.raises(UpstreamTimeout, match="total_ms"):
            await response.read()


async def test_a_reset_behind_a_full_buffer_is_told_after_it(transport: DirectTransport) -> None:
    """The bytes that arrived before a reset come first."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(answer(b"x" * 4_000_000)[:-10])
        await peer.receive_bytes()

    async with ScriptedUpstream(script) as upstream:
        response = await transport.open(a_request(upstream.url), limits())
        await until(lambda: response.size > BUFFER_BYTES_MAX)
        upstream.peers[0].reset()
        held = await response.read()
        with pytest.raises(UpstreamStreamIncomplete):
            await read_all(response)

    assert len(held) > BUFFER_BYTES_MAX
    assert set(held) == {ord("x")}


async def test_a_small_request_leaves_in_one_piece(transport: DirectTransport) -> None:
    """Head and body come in one read, without waiting for an acknowledgement between them."""
    received = b""

    async def script(peer: Peer) -> None:
        nonlocal received
        received = await peer.receive_bytes()
        peer.send(answer())

    async with ScriptedUpstream(script) as upstream:
        await call(transport, upstream)

    assert received.endswith(b'\r\n\r\n{"model": "m"}')


async def test_small_packets_are_not_held_back(transport: DirectTransport) -> None:
    """Nagle's algorithm is off on every connection."""
    async with ScriptedUpstream(answering(chunked_head())) as upstream:
        response = await transport.open(a_request(upstream.url), limits())
        sock = response.connection._transport.get_extra_info("socket")

        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def a_lone_connection() -> tuple[Connection, OriginPool, QuietSocket]:
    """A connection on a socket that never answers, and the pool it belongs to."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    pool = OriginPool(loop, deadlines, connections_max=1, idle_expiry_s=60)
    assert pool.reserve()
    connection, sock = Connection(loop, deadlines, pool), QuietSocket()
    pool.admit(connection)
    return connection, pool, sock


async def test_nothing_is_sent_over_a_socket_that_just_closed() -> None:
    """The loop knows that a socket is closed before it tells: at rest and on the first use."""
    connection, pool, sock = await a_lone_connection()
    connection.connection_made(cast(asyncio.Transport, sock))
    pool.release(connection, 60)
    sock.is_broken = True
    assert pool.take() is None
    assert pool.reserve()

    connection, pool, sock = await a_lone_connection()
    connection.connection_made(cast(asyncio.Transport, sock))
    sock.is_broken = True
    with pytest.raises(UpstreamUnreachable, match="before the request was sent"):
        connection.start(b"", b"", limits(), 1e9)
    assert pool.reserve()


async def test_an_end_at_rest_is_acted_on_at_once() -> None:
    """The provider's end is enough; the loop's word that the socket is closed may come later."""
    connection, pool, sock = await a_lone_connection()
    connection.connection_made(cast(asyncio.Transport, sock))
    pool.release(connection, 60)
    connection.eof_received()

    assert sock.is_aborted
    assert pool.take() is None
    assert pool.reserve()


async def test_a_server_that_keeps_nothing_is_believed() -> None:
    """`timeout=0` closes the connection with the last byte of its answer."""
    connection, pool, sock = await a_lone_connection()
    connection.connection_made(cast(asyncio.Transport, sock))
    connection.start(b"", b"", limits(), asyncio.get_running_loop().time() + 60)
    connection.data_received(answer(headers=("keep-alive: timeout=0",)))

    assert sock.is_aborted
    assert pool.take() is None


async def test_a_connection_made_too_late_is_closed() -> None:
    """The call was given up while the connection was made, and then the loop made it anyway."""
    connection, pool, sock = await a_lone_connection()
    pool.abandon(connection)
    connection.connection_made(cast(asyncio.Transport, sock))

    assert sock.is_aborted
    assert pool.reserve()


async def test_a_paused_connection_that_is_lost_is_not_resumed() -> None:
    """What arrived before can still be read."""
    connection, _, sock = await a_lone_connection()
    connection.connection_made(cast(asyncio.Transport, sock))
    response = connection.start(b"", b"", limits(), asyncio.get_running_loop().time() + 60)
    response.waiter = None
    connection.data_received(answer(b"x" * 300_000)[:-1])
    assert connection.is_paused
    sock.is_broken = True
    assert await response.read() == b"x" * 299_999
    connection.connection_lost(ConnectionResetError())
    with pytest.raises(UpstreamStreamIncomplete, match="reset"):
        await response.read()


async def test_an_answer_that_ends_during_a_pause_is_the_last() -> None:
    """A loop that delivers what it was asked to hold is not trusted with another call."""
    connection, _, sock = await a_lone_connection()
    connection.connection_made(cast(asyncio.Transport, sock))
    response = connection.start(b"", b"", limits(), asyncio.get_running_loop().time() + 60)
    response.waiter = None
    connection.data_received(answer(b"x" * 300_000)[:-1])
    connection.data_received(b"x")

    assert sock.is_aborted
    assert await read_all(response) == b"x" * 300_000


def test_a_fault_of_our_own_is_not_the_providers() -> None:
    """An exception inside a parser callback is reported as a defect of the gateway."""
    failure = parser_failure(HttpParserCallbackError("`on_body` callback error"))

    assert isinstance(failure, InternalError)
    assert failure.__cause__ is not None
