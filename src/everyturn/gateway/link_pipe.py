"""A worker's WebSocket as ASGI gives it, as a pipe of whole messages."""

from __future__ import annotations

import contextlib

from everyturn.gateway.http import Receive, Send
from everyturn.transport.link import PipeClosed


class AsgiPipe:
    """A `Pipe` over an accepted WebSocket of the server."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_open = True

    async def send(self, message: bytes) -> None:
        """Send; waits while the peer does not read."""
        if not self._is_open:
            raise PipeClosed
        try:
            await self._send({"type": "websocket.send", "bytes": message})
        except OSError:
            # What ASGI servers raise when the peer has left (ASGI 2.4, "Send exceptions").
            self._is_open = False
            raise PipeClosed from None

    async def receive(self) -> bytes:
        """The next message; a text message breaks the protocol, as bytes it is no message."""
        event = await self._receive()
        if event["type"] == "websocket.disconnect":
            self._is_open = False
            raise PipeClosed
        data = event.get("bytes")
        if data is None:
            return str(event.get("text", "")).encode("utf-8", "surrogatepass")
        assert isinstance(data, bytes)
        return data

    async def close(self) -> None:
        """Close the connection."""
        if not self._is_open:
            return
        self._is_open = False
        with contextlib.suppress(OSError):  # The peer may be quicker.
            await self._send({"type": "websocket.close", "code": 1000})
