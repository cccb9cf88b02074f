"""A provider of raw bytes on loopback: a test says byte by byte what each connection does.

Below HTTP on purpose, so that it can break every rule. A script is an async function that gets the
provider's side of one connection; it is started for each connection and is over when it returns.

    async def script(peer: Peer) -> None:
        await peer.receive()
        peer.send(answer(b"hello"))

    async with ScriptedUpstream(script) as upstream:
        ... upstream.url ...
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from everyturn.transport.base import Timeouts, UpstreamRequest, UpstreamResponse

WAIT_S = 5.0
"""How long a test waits for what must happen; only a failing test waits that long."""
NOTICED_S = 1.0
"""How soon a provider must notice that a call was given up."""


@dataclass(frozen=True)
class SeenRequest:
    """A request as the provider got it."""

    head: bytes
    """Request line and headers, without the empty line."""
    body: bytes

    @property
    def line(self) -> str:
        """The request line."""
        return self.head.split(b"\r\n")[0].decode("ascii")

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names and values as sent, in order."""
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]


class Peer(asyncio.Protocol):
    """The provider's side of one connection."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream
        self._received = b""
        self._arrived = asyncio.Event()
        self._is_gone = asyncio.Event()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self.transport: asyncio.Transport | None = None

    async def receive(self) -> SeenRequest:
        """The next request; raises ConnectionError if the client leaves before it is complete."""
        while True:
            head, end, rest = self._received.partition(b"\r\n\r\n")
            request = SeenRequest(head, b"")
            named = {name.lower(): value for name, value in request.headers}
            wanted = named.get("content-length", "0") if end else "0"
            if end and len(rest) >= int(wanted):
                self._received = rest[int(wanted) :]
                request = SeenRequest(head, rest[: int(wanted)])
                self._upstream.requests.append(request)
                return request
            if self._is_gone.is_set():
                raise ConnectionError("the client left")
            self._arrived.clear()
            await self._arrived.wait()

    async def receive_bytes(self) -> bytes:
        """Whatever arrives next."""
        while not self._received:
            if self._is_gone.is_set():
                raise ConnectionError("the client left")
            self._arrived.clear()
            await self._arrived.wait()
        received, self._received = self._received, b""
        return received

    def send(self, data: bytes) -> None:
        """Give `data` to the socket in one piece; raises ConnectionError if the client left."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionError("the client left")
        self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken most of what was sent."""
        await self._can_write.wait()
        if self._is_gone.is_set():
            raise ConnectionError("the client left")

    def close(self) -> None:
        """End the connection in the normal way, after what was sent."""
        assert self.transport is not None
        self.transport.close()

    def reset(self) -> None:
        """Break the connection: the client's system gets a reset."""
        assert self.transport is not None
        linger = struct.pack("ii", 1, 0)
        sock = self.transport.get_extra_info("socket")
        # uvloop hides `setsockopt` of a closed transport only; both loops have it here.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.abort()

    async def gone(self, within_s: float = NOTICED_S) -> None:
        """Wait until the client has closed the connection; TimeoutError after `within_s`."""
        async with asyncio.timeout(within_s):
            await self._is_gone.wait()

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed."""
        return self._is_gone.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._upstream.peers.append(self)
        self._upstream.start(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._arrived.set()

    def eof_received(self) -> None:
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _leave(self) -> None:
        self._is_gone.set()
        self._arrived.set()
        self._can_write.set()


Script = Callable[[Peer], Awaitable[None]]


class ScriptedUpstream:
    """Listens on loopback and runs a script for each connection; its failure fails the test."""

    def __init__(self, script: Script, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._ssl_context = ssl_context
        self._tasks: list[asyncio.Task[None]] = []
        self.peers: list[Peer] = []
        """Every connection ever accepted, in order."""
        self.requests: list[SeenRequest] = []
        """Every request any script received, in order."""
        self.port = 0

    async def __aenter__(self) -> ScriptedUpstream:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Peer(self), "127.0.0.1", 0, ssl=self._ssl_context, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self._server.close()
        for peer in self.peers:
            if peer.transport is not None:
                peer.transport.abort()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        if kind is None:
            for result in results:
                if isinstance(result, Exception) and not isinstance(result, ConnectionError):
                    raise result

    def start(self, peer: Peer) -> None:
        """Run the script for a new connection."""

        async def run() -> None:
            await self._script(peer)

        self._tasks.append(asyncio.get_running_loop().create_task(run()))

    @property
    def url(self) -> str:
        """An address of a chat completion here."""
        scheme = "http" if self._ssl_context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/v1/chat/completions"


def answering(*pieces: bytes) -> Script:
    """A script that answers every request on a connection with `pieces`, each sent on its own."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.receive()
            for piece in pieces:
                peer.send(piece)
                await asyncio.sleep(0)

    return script


def answering_once(*pieces: bytes) -> Script:
    """The same for the first request, and then the connection is closed."""

    async def script(peer: Peer) -> None:
        await peer.receive()
        for piece in pieces:
            peer.send(piece)
            await asyncio.sleep(0)
        peer.close()

    return script


def answer(body: bytes = b"{}", *, status: str = "200 OK", headers: tuple[str, ...] = ()) -> bytes:
    """A whole answer with a content length."""
    lines = (f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "", "")
    return "\r\n".join(lines).encode("latin-1") + body


def chunked_head(*headers: str) -> bytes:
    """The head of a streamed answer."""
    lines = ("HTTP/1.1 200 OK", "transfer-encoding: chunked", *headers, "", "")
    return "\r\n".join(lines).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a streamed answer; of no data the one that ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def a_request(url: str, body: bytes = b'{"model": "m"}', **more: Any) -> UpstreamRequest:
    """A request as the gateway makes them."""
    more.setdefault("headers", (("content-type", "application/json"),))
    return UpstreamRequest(url=url, body=body, **more)


def limits(**more: int) -> Timeouts:
    """Time limits that only a hanging test reaches, but for those that are given."""
    generous = {"connect_ms": 5000, "first_byte_ms": 5000, "idle_ms": 5000, "total_ms": 10_000}
    return Timeouts(**{**generous, **more})


async def read_all(response: UpstreamResponse) -> bytes:
    """The rest of a body."""
    parts = []
    while data := await response.read():
        parts.append(data)
    return b"".join(parts)


async def until(condition: Callable[[], bool]) -> None:
    """Poll until `condition` holds; TimeoutError after a bound."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.002)
