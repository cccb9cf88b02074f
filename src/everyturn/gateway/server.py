"""Run the application: sockets, signals, and an end that loses nothing.

uvicorn owns HTTP/1.1. On SIGTERM or SIGINT new turns are refused with `gateway_stopping`, open ones
get their time, what is still open then is ended with an error to its client, and only when every
record is durable does the process end.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from typing import Final

import uvicorn

from everyturn import __version__
from everyturn.config import Config
from everyturn.gateway.app import App, build
from everyturn.gateway.log import Log
from everyturn.gateway.records import open_recording
from everyturn.presets.price import warm_prices

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75
"""Longer than common clients keep an idle connection, so that they close it and not we."""
CUT_OFF_S: Final = 5.0
"""How long turns that were cut off at shutdown may take to be recorded and answered."""
POLL_S: Final = 0.05


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: ours drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: Config, environment: Mapping[str, str]) -> None:
    """Serve until a signal ends it.

    Raises OSError when the port cannot be had and AuditUnavailable when the store cannot be opened.
    """
    log = Log(is_on=config.log == "json")
    listener = _listen(config.host, config.port)
    try:
        recording = await open_recording(config, log)
    except BaseException:
        listener.close()
        raise
    app, transport = build(config, environment, recording, log)
    server = _Server(
        uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=BACKLOG,
        )
    )
    host, port = listener.getsockname()[:2]
    log(
        "gateway.listening",
        host=str(host),
        port=port,
        models=len(config.models),
        data=str(config.data),
        version=__version__,
    )
    warming = asyncio.create_task(asyncio.to_thread(warm_prices))
    stopping = asyncio.create_task(_stop_on_signal(server, app, config, log))
    try:
        await server.serve(sockets=[listener])
    finally:
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopping
        await warming
        await transport.close()
        await recording.close()
        log("gateway.stopped")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


async def _stop_on_signal(server: uvicorn.Server, app: App, config: Config, log: Log) -> None:
    """Wait for a signal, then let the open turns end, then the server. A second signal hurries."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    hurried = asyncio.Event()

    def on_signal() -> None:
        if asked.is_set():
            hurried.set()
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await asked.wait()
    app.chat.is_stopping = True
    log("gateway.stopping", count=app.chat.open_turns)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(config.shutdown_grace_ms / 1000):
            while app.chat.open_turns and not hurried.is_set():
                await asyncio.sleep(POLL_S)
    if app.chat.open_turns:
        log("gateway.cutting_off", count=app.chat.open_turns)
        app.chat.cut_off()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CUT_OFF_S):
                while app.chat.open_turns:
                    await asyncio.sleep(POLL_S)
    server.should_exit = True
