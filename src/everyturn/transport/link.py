"""One end of a worker link at work: a session, a pipe of whole messages, and a clock.

The same for gateway and worker. It moves bytes and looks at the clock; what they mean is for the
session (`link/session.py`), and what to do about it for the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from everyturn.link.messages import AnyMessage, Bye, ByeCode, LinkFault
from everyturn.link.session import Session

TICK_S: Final = 1.0
"""How often the clock is looked at, at least."""

FAREWELL_S: Final = 1.0
"""How long the last messages may take to leave."""

QUEUED_BYTES_MAX: Final = 1024 * 1024
"""While more than this waits to be sent, nobody may add to it but with what the protocol owes."""


class PipeClosed(Exception):
    """The connection is gone; nothing can be sent or received any more."""


class Pipe(Protocol):
    """A connection that carries whole messages, in order."""

    async def send(self, message: bytes) -> None:
        """Send; waits while the peer does not read. Raises PipeClosed."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises PipeClosed."""
        ...

    async def close(self) -> None:
        """Close the connection. Raises nothing."""
        ...


class Owner(Protocol):
    """Whoever the messages of a link are for."""

    def on_message(self, message: AnyMessage, payload: bytes) -> None:
        """A message arrived. Must not block."""
        ...

    def on_lost(self, calls: list[int]) -> None:
        """The link has ended, and with it these calls."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a link ended.

    how: `lost` (the connection broke or the peer was silent), `fault` (the peer broke the
    protocol), `closed` (this side ended it), `bye` (the peer ended it). code: of the farewell,
    where there was one.
    """

    how: Literal["lost", "fault", "closed", "bye"]
    code: ByeCode | None
    message: str

    @property
    def reason(self) -> str:
        """Why, in words of our own: what a peer says may be anything."""
        return f"bye: {self.code}" if self.how == "bye" else f"{self.how}: {self.message}"


class LinkEnd:
    """Runs one end of a link until it ends."""

    def __init__(self, session: Session, pipe: Pipe, owner: Owner) -> None:
        self.session = session
        self._pipe = pipe
        self._owner = owner
        self._ending: Ending | None = None
        self._reader: asyncio.Task[None] | None = None
        self._has_words = asyncio.Event()
        self._can_add = asyncio.Event()
        self._can_add.set()
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self.on_can_add: Callable[[], None] = _nothing
        """Called when there is room for more bodies again."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that no new body may be added."""
        return not self._can_add.is_set()

    def flush(self) -> None:
        """Send what the session has to say. Call it after each act on the session."""
        out = self.session.take()
        if not out:
            return
        self._queue.extend(out)
        self._queued_bytes += sum(map(len, out))
        if self._queued_bytes > QUEUED_BYTES_MAX:
            self._can_add.clear()
        self._has_words.set()

    async def can_add(self) -> None:
        """Wait until there is room for more bodies; returns at once when the link has ended."""
        await self._can_add.wait()

    def close(self, code: ByeCode, message: str) -> None:
        """End the link in order."""
        self._end(Ending("closed", code, message))

    async def run(self) -> Ending:
        """Run until the link ends, and close the pipe. Raises only asyncio.CancelledError."""
        if self._ending is not None:
            self._owner.on_lost(self.session.lose())
            await self._close_pipe()
            return self._ending
        self._reader = asyncio.create_task(self._read())
        writer = asyncio.create_task(self._write())
        ticker = asyncio.create_task(self._tick())
        self.flush()
        try:
            await asyncio.wait((self._reader,))
        finally:
            self._reader.cancel()
            ticker.cancel()
            ending = self._ending or Ending("closed", "stopping", "this side ended")
            if ending.how == "closed" and ending.code is not None:
                lost = self.session.close(ending.code, ending.message)
            else:
                lost = self.session.lose()
            self.flush()
            self._can_add.set()
            self._owner.on_lost(lost)
            try:
                await self._say_farewell(writer)
            finally:
                writer.cancel()
                await self._close_pipe()
        if not self._reader.cancelled():
            self._reader.result()  # Raises what was a defect.
        return ending

    async def _say_farewell(self, writer: asyncio.Task[None]) -> None:
        self._queue.append(b"")
        self._has_words.set()
        await asyncio.wait((writer,), timeout=FAREWELL_S)

    async def _close_pipe(self) -> None:
        """Close, but do not wait for a peer that does not read any more."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._pipe.close()
        except TimeoutError:
            pass  # The server closes the socket once nobody serves it.

    def _end(self, ending: Ending) -> None:
        """The first reason counts."""
        if self._ending is None:
            self._ending = ending
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                raw = await self._pipe.receive()
                event = self.session.receive(raw, loop.time())
                if event is not None:
                    if type(event[0]) is Bye:
                        self._end(Ending("bye", event[0].code, event[0].message))
                        return
                    self._owner.on_message(*event)
                self.flush()
        except PipeClosed:
            self._end(Ending("lost", None, "the connection broke"))
        except LinkFault as fault:
            code: ByeCode = "fault"
            if fault.code == "protocol_version_unsupported":
                code = "protocol_version_unsupported"
            self._end(Ending("fault", code, str(fault)))

    async def _write(self) -> None:
        try:
            while True:
                while self._queue:
                    queue, self._queue = self._queue, []
                    for message in queue:
                        if not message:
                            return  # The mark of the end.
                        await self._pipe.send(message)
                        self._queued_bytes -= len(message)
                        if self.is_full and self._queued_bytes <= QUEUED_BYTES_MAX:
                            self._can_add.set()
                            self.on_can_add()
                self._has_words.clear()
                await self._has_words.wait()
        except PipeClosed:
            self._end(Ending("lost", None, "the connection broke"))

    async def _tick(self) -> None:
        while True:
            try:
                self.session.tick(asyncio.get_running_loop().time())
            except LinkFault as fault:
                self._end(Ending("lost", None, str(fault)))
                return
            self.flush()
            await asyncio.sleep(min(TICK_S, self.session.heartbeat_s / 2))


def _nothing() -> None:
    """Nobody waits for room."""
