"""Law 1 for the transport: any cutting of an answer on its way yields the same answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from everyturn.transport.base import Timeouts
from everyturn.transport.connection import Connection
from everyturn.transport.deadlines import Deadlines
from everyturn.transport.direct import DirectTransport
from everyturn.transport.pool import OriginPool
from tests.support.quiet_socket import QuietSocket
from tests.support.scripted_upstream import Peer, ScriptedUpstream, a_request, limits, read_all


@dataclass(frozen=True)
class Answer:
    """An answer as bytes, and what it says."""

    raw: bytes
    status: int
    body: bytes
    head_bytes: int
    ends_by_close: bool


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Well-formed answers in each framing, with interim answers, extensions and trailers."""
    parts = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
    framing = draw(st.sampled_from(["length", "chunked", "close", "none"]))
    status = 204 if framing == "none" else draw(st.sampled_from([200, 301, 404, 429, 500]))
    body = b"" if framing == "none" else b"".join(parts)
    raw = b"".join(draw(st.lists(st.sampled_from(INTERIM), max_size=2)))
    raw += b"HTTP/1.1 %d Some Reason\r\nX-Value: \xe9 a \t\r\n" % status
    if framing == "length":
        raw += b"Content-Length: %d\r\n" % len(body)
    elif framing == "chunked":
        raw += b"Transfer-Encoding: chunked\r\n"
    raw += b"\r\n"
    head_bytes = len(raw)
    if framing == "chunked":
        extension = draw(st.sampled_from([b"", b";a", b';a="b\\"c"']))
        raw += b"".join(b"%X%b\r\n%b\r\n" % (len(part), extension, part) for part in parts)
        raw += b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: 1\r\n"])) + b"\r\n"
    else:
        raw += body
    return Answer(raw, status, body, head_bytes, framing == "close")


INTERIM = (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")


@st.composite
def cut_answers(draw: st.DrawFn) -> tuple[Answer, list[bytes]]:
    """An answer and the pieces in which it comes."""
    answer = draw(answers())
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(answer.raw) - 1)), max_size=12)))
    edges = [0, *cuts, len(answer.raw)]
    return answer, [answer.raw[a:b] for a, b in pairwise(edges) if a < b]


@dataclass
class Outcome:
    """What a call came to."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    has_ended: bool
    failure: str | None
    is_kept: bool


async def deliver(pieces: list[bytes], *, ends_by_close: bool) -> Outcome:
    """One call on a connection without a network, whose answer comes in `pieces`."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    pool = OriginPool(loop, deadlines, connections_max=1, idle_expiry_s=60)
    assert pool.reserve()
    connection = Connection(loop, deadlines, pool)
    pool.admit(connection)
    socket = QuietSocket()
    connection.connection_made(cast(asyncio.Transport, socket))
    response = connection.start(b"", b"", Timeouts(), loop.time() + 600)
    for piece in pieces:
        if not socket.is_aborted:
            connection.data_received(piece)
    if ends_by_close and not socket.is_aborted:
        connection.eof_received()
    deadlines.close()
    failure = None if response.failure is None else response.failure.code
    return Outcome(
        status=response.status,
        headers=response.headers,
        body=b"".join(response.parts),
        has_ended=response.has_ended,
        failure=failure,
        is_kept=not socket.is_aborted,
    )


def singly(raw: bytes) -> Iterator[bytes]:
    """Byte by byte."""
    return (raw[index : index + 1] for index in range(len(raw)))


@given(cut_answers())
def test_any_cutting_yields_the_same_answer(case: tuple[Answer, list[bytes]]) -> None:
    """Whole, cut anywhere and byte by byte: same head, same body, same fate of the connection."""
    answer, pieces = case
    for way in ([answer.raw], pieces, list(singly(answer.raw))):
        outcome = asyncio.run(deliver(way, ends_by_close=answer.ends_by_close))

        assert outcome.failure is None
        assert outcome.has_ended
        assert (outcome.status, outcome.body) == (answer.status, answer.body)
        assert ("x-value", "é a") in outcome.headers
        assert outcome.is_kept is not answer.ends_by_close


@given(cut_answers(), st.data())
def test_any_end_before_the_legal_one_is_a_failure(
    case: tuple[Answer, list[bytes]], data: st.DataObject
) -> None:
    """Cut off after any byte, an answer with framing is incomplete or unreachable, never whole."""
    answer, _ = case
    size = data.draw(st.integers(0, len(answer.raw) - 1))
    if answer.ends_by_close and size >= answer.head_bytes:
        return  # There the end of the connection is the only mark.
    outcome = asyncio.run(deliver([answer.raw[:size]], ends_by_close=True))

    assert not outcome.has_ended
    assert outcome.failure in ("upstream_unreachable", "upstream_stream_incomplete")
    assert not outcome.is_kept
    assert answer.body.startswith(outcome.body)


PIECES_OF_HTTP = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"),
    *(b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n", b"connection: close\r\n"),
    *(b"a: b\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", b":", b";x", b"\x00", b"abc"),
    *(b"3\r\nabc\r\n", b"3\r\n", b"0\r\n", b"0\r\n\r\n", b"ffffffffffffffffff"),
)
BEGINNINGS = (
    b"",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
)


@settings(max_examples=300)
@given(
    st.sampled_from(BEGINNINGS),
    st.lists(st.sampled_from(PIECES_OF_HTTP), max_size=8),
    st.booleans(),
)
def test_no_bytes_break_a_connection(start: bytes, pieces: list[bytes], is_closed: bool) -> None:
    """Nonsense gives the same typed outcome whole and byte by byte, and never another exception."""
    raw = start + b"".join(pieces)
    whole, cut = (
        asyncio.run(deliver(way, ends_by_close=is_closed)) for way in ([raw], list(singly(raw)))
    )

    # A body of line ends alone looks like the blank lines that may follow it; see `connection`.
    assume(not cut.body or cut.body.strip(b"\r\n"))
    assert whole == cut


@settings(max_examples=25)
@given(cut_answers())
def test_any_cutting_on_a_real_wire_yields_the_same_answer(
    case: tuple[Answer, list[bytes]],
) -> None:
    """The same over sockets, with the loop turning between the pieces."""
    answer, pieces = case

    async def script(peer: Peer) -> None:
        await peer.receive()
        for piece in pieces:
            peer.send(piece)
            await asyncio.sleep(0)
        if answer.ends_by_close:
            peer.close()

    async def call() -> tuple[int, bytes]:
        transport = DirectTransport()
        async with ScriptedUpstream(script) as upstream:
            response = await transport.open(a_request(upstream.url), limits())
            body = await read_all(response)
            await transport.close()
            return response.status, body

    assert asyncio.run(call()) == (answer.status, answer.body)
