"""A worker and the gateway's end of its link in one process, over a real WebSocket on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from everyturn.gateway.link_pipe import AsgiPipe
from everyturn.link.messages import MESSAGE_BYTES_MAX
from everyturn.link.session import Session
from everyturn.transport.direct import DirectTransport
from everyturn.transport.link import Ending
from everyturn.transport.worker import Workers, WorkerTransport
from everyturn.worker.dial import dial
from everyturn.worker.relay import Relay
from tests.support.scripted_upstream import (
    ScriptedUpstream,
    a_request,
    limits,
    read_all,
    until,
)

URL = "worker://llama/chat/completions"


@dataclass
class Hub:
    """A gateway's workers behind a WebSocket server, and the workers that were started here."""

    workers: Workers
    port: int = 0
    gateway_session: Any = None
    """Makes the gateway's session of the next link; None for the usual one."""
    endings: list[Ending] = field(default_factory=list)
    """How links ended, as the gateway saw it."""
    relays: dict[str, Relay] = field(default_factory=dict)
    runs: dict[str, asyncio.Task[Ending]] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    """What the workers told of themselves."""
    credentials: list[str] = field(default_factory=list)
    """Credentials that the workers stored."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Take a worker; its name is its credential."""
        assert scope["type"] == "websocket"
        name = dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        await receive()
        await send({"type": "websocket.accept"})
        session = self.gateway_session() if self.gateway_session else None
        link = self.workers.attach(name, AsgiPipe(receive, send), session)
        self.endings.append(await link.run())

    async def start(
        self,
        targets: Mapping[str, str],
        *,
        name: str = "box",
        calls_max: int = 256,
        body_bytes_max: int = 64 * 1024 * 1024,
        session: Session | None = None,
        port: int | None = None,
        is_awaited: bool = True,
    ) -> Relay:
        """Start a worker with these targets and wait until it is connected.

        port: where it dials, if something stands between.
        """
        transport = DirectTransport()

        def tell(event: str, **facts: Any) -> None:
            self.lines.append({"event": event, "worker": name, **facts})

        relay = Relay(
            await dial(f"ws://127.0.0.1:{port or self.port}", name),
            transport,
            targets,
            software="test/1",
            tell=tell,
            store_credential=self.credentials.append,
            calls_max=calls_max,
            body_bytes_max=body_bytes_max,
            session=session,
        )

        async def run() -> Ending:
            try:
                return await relay.run()
            finally:
                await transport.close()

        self.relays[name] = relay
        self.runs[name] = asyncio.create_task(run())
        if is_awaited:
            await until(lambda: relay.is_welcome)
        return relay

    def transport(self, *names: str) -> WorkerTransport:
        """A transport over these workers."""
        return WorkerTransport(self.workers, names or ("box",))


@asynccontextmanager
async def a_hub() -> AsyncIterator[Hub]:
    """A gateway's end that workers can dial in to, with the product's WebSocket server."""
    hub = Hub(Workers())
    config = uvicorn.Config(
        hub,
        ws="websockets-sansio",
        ws_max_size=MESSAGE_BYTES_MAX,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
    )
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        made: asyncio.Protocol = config.http_protocol_class(
            config=config, server_state=state, app_state={}
        )
        return made

    # Without `uvicorn.Server`, whose start and end take tenths of a second.
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, backlog=128)
    hub.port = server.sockets[0].getsockname()[1]
    try:
        yield hub
    finally:
        hub.workers.close("the test is over")
        for run in hub.runs.values():
            await run
        server.close()
        await until(lambda: not state.connections and not state.tasks)


def target(upstream: ScriptedUpstream) -> dict[str, str]:
    """The allow list of a worker beside `upstream`."""
    return {"llama": upstream.url.removesuffix("/chat/completions")}


async def got(hub: Hub, *names: str, **more: Any) -> bytes:
    """The body of one call."""
    return await read_all(await hub.transport(*names).open(a_request(URL, **more), limits()))
