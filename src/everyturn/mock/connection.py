"""One connection to the scripted provider: reads requests, plays scripts, notices who goes away.

A protocol of its own on asyncio, not an HTTP library, because a script may break any rule of HTTP:
every write of a script is one write to the socket, and nothing is added, joined or repaired.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from everyturn.mock.http import HttpRequest, Refusal, RequestReader
from everyturn.mock.script import Ending, Pause, Repeat, Step
from everyturn.mock.traffic import ClientAbort, Traffic

PIPELINED_BYTES_MAX: Final = 1024 * 1024
"""Bytes of later requests held while an answer runs; more closes the connection."""
DELIVERY_WAIT_MS_MAX: Final = 2_000
"""How long a reset waits until what was written has left this machine."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER, on with zero seconds: closing sends RST instead of FIN."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider does about one request."""

    steps: tuple[Step, ...]
    model: str | None = None
    scenario: str | None = None
    is_counted: bool = True
    """False for the provider's own `/__` endpoints."""


class Answerer(Protocol):
    """Decides what a request is answered with. Must not block."""

    def __call__(self, request: HttpRequest | Refusal) -> Answer: ...


class Connection(asyncio.Protocol):
    """The server's side of one TCP (or TLS) connection."""

    def __init__(
        self,
        answer: Answerer,
        traffic: Traffic,
        *,
        on_open: Callable[[Connection], None],
        on_gone: Callable[[Connection], None],
    ) -> None:
        self._answer = answer
        self._traffic = traffic
        self._on_open = on_open
        self._on_gone = on_gone
        self._reader = RequestReader()
        self._open_answer: Answer | None = None
        self._player: asyncio.Task[None] | None = None
        self._keep_alive = True
        self._bytes_sent = 0
        self._is_closing = False

    # ------------------------------------------------------------- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._traffic.connections += 1
        self._traffic.connections_open += 1
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if self._open_answer is None:
            self._serve()
        elif self._reader.buffered > PIPELINED_BYTES_MAX:
            self.drop()

    def eof_received(self) -> bool:
        # A client that has said all it wants to say is a client that went away: that is how closing
        # a socket looks from here. Without the abort, bytes that wait to be written would keep it
        # from being noticed.
        self._transport.abort()
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        self._client_gone()
        self._traffic.connections_open -= 1
        self._on_gone(self)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    # ------------------------------------------------------------- one request after another

    def drop(self) -> None:
        """Close at once from this side; the answer that runs is no client's abort."""
        self._close_answer()
        self._is_closing = True
        self._transport.abort()

    def _serve(self) -> None:
        """Answer the requests that have arrived, until one needs time or none is left."""
        while self._open_answer is None and not self._is_closing:
            request = self._reader.next()
            if request is None:
                if self._reader.take_continue():
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            self._keep_alive = isinstance(request, HttpRequest) and request.keep_alive
            answer = self._answer(request)
            self._open_answer, self._bytes_sent = answer, 0
            if answer.is_counted:
                self._traffic.answers_open += 1
            if all(isinstance(step, bytes) for step in answer.steps) and len(answer.steps) == 1:
                self._write(answer.steps[0])
                self._end_answer()
                continue
            self._player = asyncio.get_running_loop().create_task(self._play(answer.steps))

    async def _play(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            match step:
                case bytes():
                    await self._write_paced(step)
                case Pause(ms=ms):
                    await asyncio.sleep(ms / 1000)
                case Repeat(data=data, count=count):
                    for _ in range(count):
                        await self._write_paced(data)
                case Ending.HANG:
                    await asyncio.get_running_loop().create_future()
                case Ending.CLOSE:
                    self._close_answer()
                    self._is_closing = True
                    self._transport.close()
                    return
                case Ending.ABORT:
                    await self._delivered()
                    self._close_answer()
                    self._reset()
                    return
        self._player = None
        self._end_answer()
        self._serve()

    async def _write_paced(self, data: bytes) -> None:
        self._write(data)
        # Let the loop see a client that left, and let the client read before the next write.
        await asyncio.sleep(0)
        if not self._can_write.is_set():
            await self._can_write.wait()

    def _write(self, step: Step) -> None:
        assert isinstance(step, bytes)
        if step and not self._is_closing:
            self._transport.write(step)
            self._bytes_sent += len(step)

    def _end_answer(self) -> None:
        """The script came to its end in order: wait for the next request, or close if asked to."""
        self._close_answer()
        if not self._keep_alive:
            self._is_closing = True
            self._transport.close()

    def _close_answer(self) -> None:
        answer, self._open_answer = self._open_answer, None
        if answer is not None and answer.is_counted:
            self._traffic.answers_open -= 1

    def _client_gone(self) -> None:
        answer = self._open_answer
        self._is_closing = True
        self._close_answer()
        if answer is not None and answer.is_counted:
            self._traffic.client_went(
                ClientAbort(
                    model=answer.model, scenario=answer.scenario, bytes_sent=self._bytes_sent
                )
            )
        self._can_write.set()
        if self._player is not None:
            self._player.cancel()
            self._player = None

    # ------------------------------------------------------------- resetting

    async def _delivered(self) -> None:
        """Wait until the peer's machine has all that was written: a reset throws the rest away."""
        waited_ms = 0
        while waited_ms < DELIVERY_WAIT_MS_MAX and self._undelivered():
            await asyncio.sleep(0.002)
            waited_ms += 2

    def _undelivered(self) -> bool:
        if self._transport.get_write_buffer_size():
            return True
        return _bytes_in_flight(self._transport.get_extra_info("socket")) > 0

    def _reset(self) -> None:
        self._is_closing = True
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()


def _bytes_in_flight(sock: socket.socket) -> int:
    """Bytes written to a socket that its peer has not acknowledged; 0 where nobody can say."""
    if sys.platform != "linux":
        return 0
    import fcntl
    import termios

    # SIOCOUTQ (tcp(7)) has the number of TIOCOUTQ.
    answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)
