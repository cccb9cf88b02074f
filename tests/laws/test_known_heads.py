"""Law: a request whose head is known is what the parser would have made of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from everyturn.gateway.connection import ClientConnection
from everyturn.gateway.request import REQUEST, ClientRequest

Seen = tuple[Any, ...]


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """Nothing reads by itself here."""

    def resume_reading(self) -> None:
        """Nothing reads by itself here."""


async def served(reads: list[bytes]) -> tuple[list[Seen], bytes, int]:
    """What an application sees of the requests in `reads`, what is answered, and in how many reads
    the parser found no head."""
    seen: list[Seen] = []
    known = 0

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        it: ClientRequest = scope[REQUEST]
        if it.is_expecting:
            it.invite()
        body = b"".join(it.take())
        while it.has_more and not it.is_gone:
            await it.more()
            body += b"".join(it.take())
        facts = (it.method, it.path, it.query, it.headers, it.named, it.keep_alive, it.is_old)
        seen.append((*facts, body, it.fault is None))
        it.send(it.head(200, b"", (), length=0), b"", is_last=True)

    config = uvicorn.Config(app, log_config=None, ws="none")
    config.load()
    connection, wire = ClientConnection(config, ServerState(), {}), Wire()
    connection.connection_made(wire)
    for read in reads:
        if not wire.is_closed:
            untouched = connection._headers
            connection.data_received(read)
            known += connection._headers is untouched  # The parser makes new ones.
        for _ in range(6):
            await asyncio.sleep(0)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return seen, wire.written, known


LINES = st.sampled_from(
    [
        "host: a",
        "x-a: content-length: 3",
        "transfer-encoding: chunked",
        "connection: close",
        "connection: keep-alive",
        "expect: 100-continue",
        "connection: upgrade\r\nupgrade: h2c",
        "x-b: \xe9",
        "content-length: 3",
    ]
)
LENGTHS = st.sampled_from(
    ["content-length: {}", "Content-Length: {}", "content-length:{}", "content-length: 0{}", ""]
)


@st.composite
def a_request(draw: st.DrawFn) -> tuple[bytes, int]:
    """A request, and where to cut it in two."""
    start = draw(st.sampled_from(["POST /a?b HTTP/1.1", "PUT /%20 HTTP/1.1", "POST /a HTTP/1.0"]))
    lines = draw(st.lists(LINES, max_size=2))
    length = draw(LENGTHS)
    body = draw(st.sampled_from([b"", b"abc", b"\r\n\r\n", b"y" * 70_000]))
    if length:
        lines.insert(draw(st.integers(0, len(lines))), length.format(len(body)))
    elif "transfer-encoding: chunked" in lines:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    else:
        # No request that ends before its body does: what stands at its place then depends on the
        # cut, and so does whether the end of a request is met before what is no request.
        body = b"abc" if "content-length: 3" in lines else b""
    head = "".join(f"{line}\r\n" for line in [start, *lines, ""]).encode("latin-1")
    return head + body, draw(st.integers(1, len(head) - 1))


@given(st.lists(a_request(), min_size=1, max_size=3), st.integers(1, 3))
def test_a_known_head_changes_nothing(requests: list[tuple[bytes, int]], times: int) -> None:
    """Requests that come whole, again and again, are those that come in two reads each, of which
    none is known."""
    requests = [each for each in requests for _ in range(times)]
    halves = [half for data, cut in requests for half in (data[:cut], data[cut:])]

    seen, answered, _ = asyncio.run(served([data for data, _ in requests]))
    parsed, told, _ = asyncio.run(served(halves))

    assert seen == parsed
    assert answered == told


def test_the_same_head_is_known() -> None:
    """With another length too; not once another head came between, or with more than a body."""
    first = b"POST /a HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\nx-c: d\r\n\r\nabc"
    longer = first.replace(b"3", b"12").replace(b"abc", b"abc" * 4)
    other = first.replace(b"x-c", b"x-e")

    seen, _, known = asyncio.run(served([first, longer, first, other, first, first + first]))

    assert known == 2
    assert [each[7] for each in seen] == [b"abc", b"abc" * 4, *[b"abc"] * 5]


@pytest.mark.parametrize("spelled", [b"03", b"000", b"1234567890", b"+3", b" 3", b"3 ", b"4", b""])
def test_a_length_in_other_words_is_parsed(spelled: bytes) -> None:
    """Only plain digits of the length that the body has are taken without the parser."""
    first = b"POST /a HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\nx-c: d\r\n\r\nabc"

    *_, known = asyncio.run(served([first, first, first.replace(b": 3", b": " + spelled)]))

    assert known == 1
