"""What clients do to a connection: odd HTTP, too much of it, and none at all."""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn

from everyturn.errors import Failure
from everyturn.gateway.connection import SILENT_BYTES_MAX, WAITING_MAX, ClientConnection, Patience
from everyturn.gateway.http import Exchange
from everyturn.mock.script import HANG, Pause, Script
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.gateway.test_lifecycle import until
from tests.support.gateway import HELLO, Running, gateway_and_mock

BODY = msgspec.json.encode({"model": "m", "messages": HELLO, "stream": True})
STREAM = Script.sse([chunk(content="a"), FINISH, DONE])


def post(headers: str = "", *, body: bytes = BODY, version: str = "1.1") -> bytes:
    """A chat completion as bytes; `headers` are further lines, each with its end."""
    head = (
        f"POST /v1/chat/completions HTTP/{version}\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    )
    return head.encode() + body


async def exchange(port: int, data: bytes) -> bytes:
    """Send bytes and read until the gateway closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


def error_of(answer: bytes) -> dict[str, Any]:
    """The error object of an answer's body."""
    error: dict[str, Any] = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["error"]
    return error


async def access_rows(running: Running) -> list[tuple[Any, ...]]:
    """Status and error code of every request that was recorded, oldest first."""
    import apsw

    path = running.gateway.app._recording.settings.data / "everyturn.db"
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = db.execute("SELECT status_code, error_code FROM access_events ORDER BY timestamp")
    return rows.fetchall()


async def test_a_client_of_http_1_0_gets_no_chunks(tmp_path: Path) -> None:
    """The stream's body is the frames alone, and the connection ends it."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", STREAM)
        answer = await exchange(running.gateway.port, post(version="1.0"))

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body == chunk(content="a") + FINISH + DONE


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_offer_to_upgrade_is_passed_over(
    tmp_path: Path, protocol: str, is_chunked: bool
) -> None:
    """A request that offers another protocol is served whole, and so is the one after it."""
    offer = f"connection: Upgrade\r\nupgrade: {protocol}\r\n"
    first = post(offer)
    if is_chunked:
        head = post(offer, body=b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
        first = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", STREAM)
        answer = await exchange(running.gateway.port, first + post("connection: close\r\n"))

    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert answer.count(DONE) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        post("content-length: 5\r\n"),
        post("transfer-encoding: chunked\r\n"),
        b"GET /v1/models/\xc3\xa9 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        post("x-folded: a\r\n b\r\n"),
    ],
    ids=["tls", "two lengths", "length and chunks", "bytes in path", "folded"],
)
async def test_what_is_no_http_gets_a_typed_answer(tmp_path: Path, data: bytes) -> None:
    """A request that cannot be read is answered like any other, and its access is recorded."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        answer = await exchange(running.gateway.port, data)
        await until(lambda: running.gateway.app.metrics.text({}).count(b'status="400"') > 0)
        rows = await access_rows(running)

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nx-everyturn-turn-id: " in answer
    assert b"\r\nconnection: close\r\n" in answer
    assert error_of(answer)["code"] == "invalid_value"
    assert rows == [(400, "invalid_value")]


async def test_a_broken_body_is_a_refused_turn(tmp_path: Path) -> None:
    """Where the body turns out to be no HTTP, client and record say the same."""
    head = post(body=b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(head + b"1\r\n{\r\n")
        await until(lambda: running.gateway.app.chat.open_turns == 1)
        writer.write(b"zz\r\n")
        answer = await reader.read()
        writer.close()
        rows = await access_rows(running)

    assert error_of(answer)["code"] == "invalid_value"
    assert rows == [(400, "invalid_value")]


async def test_a_client_that_waits_is_told_to_go_on(tmp_path: Path) -> None:
    """A body that its client sends only when asked is asked for once, and not where the head is
    refused already."""
    asking = post("Expect: 100-Continue\r\nconnection: close\r\n")
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", STREAM)
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(asking.removesuffix(BODY))
        told = await reader.readuntil(b"\r\n\r\n")
        writer.write(BODY)
        answer = await reader.read()
        writer.close()
        refused = await exchange(running.gateway.port, asking.replace(b"/json", b"/xml"))

    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"0\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 400 ")


async def test_a_compressed_body_is_named(tmp_path: Path) -> None:
    """A body with a content encoding is refused for that, and not for what it seems to say."""
    compressed = post("content-encoding: gzip\r\nconnection: close\r\n", body=gzip.compress(BODY))
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        answer = await exchange(running.gateway.port, compressed)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert error_of(answer)["param"] == "content-encoding"


async def test_an_answer_is_not_broken_into(tmp_path: Path) -> None:
    """What follows a request and is no HTTP ends the connection after the answer, not inside it."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([chunk(content="a"), Pause(200), FINISH, DONE]))
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(post())
        await reader.readuntil(b"data: ")
        writer.write(b"\0\0\r\n\r\n")
        rest = await reader.read()
        writer.close()

    assert b"HTTP/1.1" not in rest
    assert DONE in rest


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n", b"x-a: " + b"a" * 999 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nx-a: ", b"a" * 1000),
        (b"GET /", b"a" * 1000),
    ],
    ids=["headers", "one header", "path"],
)
async def test_a_head_is_bounded(tmp_path: Path, begin: bytes, more: bytes) -> None:
    """A head that does not end is refused with 431 soon after the bound."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(begin)
        for _ in range(SILENT_BYTES_MAX // 1000 + 1):
            writer.write(more)
            await writer.drain()
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert error_of(answer)["code"] == "request_too_large"


async def test_trailers_are_bounded(tmp_path: Path) -> None:
    """So are trailers, which would grow inside a body."""
    head = post(body=b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(head + b"1\r\n{\r\n0\r\n")
        await until(lambda: running.gateway.app.chat.open_turns == 1)
        for _ in range(SILENT_BYTES_MAX // 1000 + 1):
            writer.write(b"x-a: " + b"a" * 1000 + b"\r\n")
            await writer.drain()
        answer = await reader.read()
        writer.close()

    assert error_of(answer)["code"] == "request_too_large"


async def test_half_a_request_does_not_keep_a_gateway(tmp_path: Path) -> None:
    """When it stops, a request that never arrived is refused, and the process ends."""
    extra = "shutdown_grace_ms = 100"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(post()[:-5])
        await until(lambda: running.gateway.app.chat.open_turns == 1)
        async with asyncio.timeout(5):
            await running.gateway.stop()
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 503 ")
    assert error_of(answer)["code"] == "gateway_stopping"


async def test_a_client_that_does_not_read_does_not_keep_a_gateway(tmp_path: Path) -> None:
    """When it stops, an answer that nobody reads is given up, and the process ends."""
    pieces = [chunk(content="x" * 50_000)] * 400
    extra = "shutdown_grace_ms = 100"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, mock):
        mock.add("m", Script.sse([*pieces, HANG]))
        loop = asyncio.get_running_loop()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            await loop.sock_connect(deaf, ("127.0.0.1", running.gateway.port))
            await loop.sock_sendall(deaf, post())
            connections = running.gateway._server.server_state.connections
            await until(lambda: any(one.flow.write_paused for one in connections))
            async with asyncio.timeout(15):
                await running.gateway.stop()


@asynccontextmanager
async def impatient(**seconds: float) -> AsyncIterator[int]:
    """A server with such connections and an application that reads, then answers much; its port."""

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        if scope["type"] != "http":
            return
        it = Exchange(scope)
        try:
            await it.body(1000)
        except Failure as failure:
            await it.answer(failure.status, failure.code.encode())
            return
        it.start(200, b"text/plain")
        for _ in range(400):
            await it.write(b"x" * 50_000, is_last=False)
        await it.write(b"", is_last=True)

    impatient: Any = partial(ClientConnection, patience=Patience(**seconds))
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        server = uvicorn.Server(
            uvicorn.Config(app, http=impatient, lifespan="off", log_config=None, loop="none")
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            async with asyncio.timeout(5):
                await serving


@pytest.mark.parametrize("begun", [b"", b"GET / HT"], ids=["nothing", "half a head"])
async def test_a_head_has_its_time(begun: bytes) -> None:
    """A connection that brings no whole head in time is closed."""
    async with impatient(head_s=0.1) as port:
        assert await exchange(port, begun) == b""


async def test_a_body_has_its_time() -> None:
    """A body that stops is a typed 408, and the connection ends."""
    async with impatient(body_s=0.1) as port:
        answer = await exchange(port, post()[:-5])

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(b"invalid_value")


@pytest.mark.parametrize("more", [b"", b"x" * 10], ids=["nothing", "some more"])
async def test_a_body_that_is_passed_over_has_its_time(more: bytes) -> None:
    """What is left of a body that was refused does not keep its connection for good."""
    async with impatient(body_s=0.1) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post(body=b"x" * 5000)[:-1000])
        async with asyncio.timeout(3):
            assert (await reader.readuntil(b"request_too_large")).startswith(b"HTTP/1.1 413 ")
            writer.write(more)
            assert await reader.read() == b""
        writer.close()


async def test_requests_that_wait_are_bounded(tmp_path: Path) -> None:
    """A client that sends faster than it is answered is read no further, also between answers."""
    ask = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: " + b"a" * 970 + b"\r\n\r\n"
    count, most = 2000, 0
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        connections: Any = running.gateway._server.server_state.connections
        writer.write(ask * count)
        answers = b""
        async with asyncio.timeout(20):
            while answers.count(b'{"status":"alive"}') < count:
                answers += await reader.read(65536)
                most = max([most, *(len(one._waiting) for one in connections)])
        writer.close()

    assert 0 < most < 256 * 1024 // len(ask) + WAITING_MAX  # What asyncio reads at once.


async def test_a_client_is_seen_to_leave_with_a_request_waiting(tmp_path: Path) -> None:
    """A further request that it sent before does not hide that it is gone: the call ends."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([HANG]))
        _, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(post())
        await until(lambda: len(mock.requests) == 1)
        writer.write(post())
        connections: Any = running.gateway._server.server_state.connections
        await until(lambda: any(one._waiting for one in connections))
        writer.close()
        async with asyncio.timeout(2):
            await until(lambda: running.gateway.app.chat.open_turns == 0)
        assert len(mock.requests) == 1


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    """A client that leaves its answer unread for too long is gone; the server can end."""
    loop = asyncio.get_running_loop()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        async with impatient(unread_s=0.1) as port:
            await loop.sock_connect(deaf, ("127.0.0.1", port))
            await loop.sock_sendall(deaf, post())
            assert await loop.sock_recv(deaf, 1) == b"H"


async def test_a_whole_answer_leaves_in_one_piece(tmp_path: Path) -> None:
    """Head and body are one write: a client is woken once, with all there is."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(10):
            await reader.readuntil(b'{"status":"alive"}')
        told = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        writer.close()

    # `tcpi_data_segs_in` of Linux's `struct tcp_info`: the segments with data that arrived.
    assert int.from_bytes(told[152:156], sys.byteorder) == 1
