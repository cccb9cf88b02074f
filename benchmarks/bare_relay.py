"""The least a gateway on this stack can do: relay bytes, read nothing, keep nothing.

    python benchmarks/bare_relay.py ORIGIN [PREFIX=ORIGIN ...]

The same server (uvicorn, uvloop, httptools) and the same client (`DirectTransport`) as the gateway
has, on a free loopback port that it prints. What the gateway costs beyond this is what it does.
A request whose path begins with PREFIX goes to that origin without it.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn
import uvloop

from everyturn.transport.base import Timeouts, UpstreamRequest
from everyturn.transport.direct import DirectTransport

TIMEOUTS = Timeouts()
HEADERS = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("authorization", "Bearer sk-test-FAKE"),
)
PASSED = ("content-type", "content-length", "x-request-id")


class Relay:
    """The ASGI application."""

    def __init__(self, origin: str, prefixes: dict[str, str]) -> None:
        self._origin = origin
        self._prefixes = prefixes
        self._transport = DirectTransport()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        response = await self._transport.open(
            UpstreamRequest(url=self._url(scope["path"]), headers=HEADERS, body=body), TIMEOUTS
        )
        headers = [(k.encode(), v.encode()) for k, v in response.headers if k in PASSED]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        while chunk := await response.read():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        response.close()

    def _url(self, path: str) -> str:
        for prefix, origin in self._prefixes.items():
            if path.startswith(prefix):
                return origin + path.removeprefix(prefix)
        return self._origin + path


async def serve(origin: str, prefixes: dict[str, str]) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        Relay(origin, prefixes),
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
    )
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    pairs = (argument.partition("=") for argument in sys.argv[2:])
    uvloop.run(serve(sys.argv[1], {prefix: origin for prefix, _, origin in pairs}))
