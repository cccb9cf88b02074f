"""A TCP proxy on loopback that breaks in the ways networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FaultyWire:
    """Passes bytes on until it is told otherwise."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self.bytes_passed = 0
        self._to_port = to_port
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: list[asyncio.StreamWriter] = []

    def black_hole(self) -> None:
        """From now on nothing passes, in either direction, and nobody is told."""
        self._flows.clear()

    def heal(self) -> None:
        """What was held passes on."""
        self._flows.set()

    def cut(self) -> None:
        """Break every connection: both ends get a reset."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(4096):
                await self._flows.wait()
                self.bytes_passed += len(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # One of the ends is gone; the other is told below.
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._writers += [writer, back]
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))


@asynccontextmanager
async def a_faulty_wire(to_port: int) -> AsyncIterator[FaultyWire]:
    """A proxy in front of a port of this machine."""
    wire = FaultyWire(to_port)
    server = await asyncio.start_server(wire._serve, "127.0.0.1", 0, backlog=128)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        wire.heal()
        wire.cut()
        server.close()
        await server.wait_closed()
