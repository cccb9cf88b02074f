"""Run the application: sockets, signals, and an end that loses nothing.

uvicorn listens, and `connection` is what it makes of each client. On SIGTERM or SIGINT new turns
are refused with `gateway_stopping`, open ones get their time, what is still open then is ended with
an error to its client, and only when every record is durable does the process end. A client that
neither reads nor sends cannot delay that.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Final, cast

import uvicorn

from everyturn import __version__
from everyturn.config import Config
from everyturn.errors import ConfigError
from everyturn.gateway.app import App, build
from everyturn.gateway.connection import ClientConnection
from everyturn.gateway.daily import DailyExport
from everyturn.gateway.indexing import Indexing
from everyturn.gateway.log import Log
from everyturn.gateway.records import RecordSettings, open_recording
from everyturn.presets.price import warm_prices

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75
"""Longer than common clients keep an idle connection, so that they close it and not we."""
COLLECT_EVERY: Final = (20_000, 20, 20)
"""When the garbage collector runs: objects until it looks at the young ones, and rounds of that
until it looks at older ones. Turns leave few cycles, and Python's 700 would look 30 times as often
for nothing."""
CUT_OFF_S: Final = 5.0
"""How long turns that were cut off at shutdown may take to be recorded and answered."""
LEAVE_S: Final = 2.0
"""How long clients may take then to send what they began and to read what is left for them."""


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: ours drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Gateway:
    """A gateway that listens. `start` gives one; `stop` drains and closes it."""

    def __init__(
        self,
        app: App,
        server: uvicorn.Server,
        running: asyncio.Task[None],
        warming: asyncio.Task[None],
        address: tuple[str, int],
        config: Config,
        log: Log,
    ) -> None:
        self.app = app
        self.host, self.port = address
        self._server = server
        self._running = running
        self.warming = warming
        """Loads the price list, beside the first requests."""
        self._config = config
        self._log = log

    async def wait(self) -> None:
        """Wait until it has stopped; raises what made it stop, if that was not `stop`."""
        await self._running

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Refuse new turns, give open ones their time, end what is left, then stop listening.

        hurry: when it is set, open turns get no more time.
        """
        chat = self.app.chat
        chat.is_stopping = True
        self._log("gateway.stopping", count=chat.open_turns)
        grace_s = self._config.shutdown_grace_ms / 1000
        if not await chat.idle(grace_s, hurry or asyncio.Event()):
            self._log("gateway.cutting_off", count=chat.open_turns)
            chat.cut_off()
            self._cut_off_requests()
            await chat.idle(CUT_OFF_S, asyncio.Event())
        if self.app.door is not None:
            self.app.door.stop()
        self._server.should_exit = True
        # Every record is durable by now. A client that does not read, or does not send what it
        # began, must not keep the process.
        for end in (self._cut_off_requests, self._abort_connections):
            await asyncio.wait((self._running,), timeout=LEAVE_S)
            if not self._running.done():
                end()
        await self._running
        self._log("gateway.stopped")

    def _cut_off_requests(self) -> None:
        for connection in tuple(self._server.server_state.connections):
            if isinstance(connection, ClientConnection):
                connection.cut_off()

    def _abort_connections(self) -> None:
        for connection in tuple(self._server.server_state.connections):
            connection.transport.abort()


async def start(config: Config, environment: Mapping[str, str], log: Log) -> Gateway:
    """Open the store, listen and serve in the background.

    Raises OSError when the port cannot be had, AuditUnavailable and ConfigError when the store
    cannot be opened.
    """
    _check_tls(config)
    listener = _listen(config.host, config.port)
    try:
        recording = open_recording(_record_settings(config), log)
    except BaseException:
        listener.close()
        raise
    app, transport = build(config, environment, recording, log)
    background = _background(config, log)
    app.gauges += [work.gauges for work in background]
    server = _Server(_server_config(app, config))
    warming = asyncio.create_task(asyncio.to_thread(warm_prices))

    async def run() -> None:
        for work in background:
            work.start()
        if app.door is not None:
            app.door.start()
        try:
            await server.serve(sockets=[listener])
        finally:
            if app.door is not None:
                app.door.stop()
            for work in background:
                await asyncio.to_thread(work.stop)
            await warming
            await transport.close()
            await recording.close()

    running = asyncio.create_task(run())
    while not server.started and not running.done():  # noqa: ASYNC110 (uvicorn has only a flag)
        await asyncio.sleep(0.005)
    if running.done():
        await running
    host, port = listener.getsockname()[:2]
    log(
        "gateway.listening",
        host=str(host),
        port=port,
        models=len(config.models),
        data=str(config.data),
        version=__version__,
    )
    return Gateway(app, server, running, warming, (str(host), port), config, log)


def _server_config(app: App, config: Config) -> uvicorn.Config:
    """How uvicorn serves; WebSockets only where workers come in."""
    door = app.door
    return uvicorn.Config(
        app,
        loop="none",
        http=cast(type[asyncio.Protocol], ClientConnection),  # One by its methods.
        ws="none" if door is None else "websockets-sansio",
        ws_max_size=0 if door is None else door.message_bytes_max,
        ws_per_message_deflate=False,
        ws_ping_interval=None,  # The worker link has a heartbeat of its own.
        ssl_certfile=config.tls and config.tls[0],
        ssl_keyfile=config.tls and str(config.tls[1]),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=BACKLOG,
    )


async def serve(config: Config, environment: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT; a second signal hurries. Raises what `start` raises."""
    asked, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        if asked.is_set():
            hurry.set()
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    log = Log(is_on=config.log == "json")
    gateway = await start(config, environment, log)
    log.gather(loop)
    gc.set_threshold(*COLLECT_EVERY)
    gateway.warming.add_done_callback(lambda _: _keep_all())
    stopping = asyncio.create_task(asked.wait())
    ended = asyncio.create_task(gateway.wait())
    try:
        await asyncio.wait((stopping, ended), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            await gateway.stop(hurry)
        await ended
    finally:
        log.gather(None)


def _background(config: Config, log: Log) -> list[Indexing | DailyExport]:
    """What works on the record beside the turns."""
    if not config.records:
        return []
    indexing = Indexing(config.data, log)
    if config.export_folder is None:
        return [indexing]
    return [indexing, DailyExport(config.data, config.export_folder, log)]


def _keep_all() -> None:
    """Tell the garbage collector that what exists by now stays, the price list above all: looking
    through it again would find nothing, and take some 40 ms each time."""
    gc.collect()
    gc.freeze()


def _record_settings(config: Config) -> RecordSettings:
    return RecordSettings(
        is_on=config.records,
        data=config.data,
        durability=config.durability,
        on_failure=config.on_failure,
        queue_bytes_max=config.queue_bytes_max,
        service=config.service,
        instance=config.instance,
        environment=config.environment,
        known_secrets=(
            *(model.api_key for model in config.models if model.api_key),
            *config.redaction.known,
        ),
        rules=config.redaction.rules,
        media_bytes_max=config.media_bytes_max,
    )


def _check_tls(config: Config) -> None:
    """Raises ConfigError when the certificate or its key cannot be used."""
    if config.tls is None:
        return
    certificate, key = config.tls
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ValueError) as bad:
        reason = getattr(bad, "reason", None) or getattr(bad, "strerror", None) or "it is not PEM"
        what = f"cannot be used: {reason}."
        hint = "Name a chain and its key in PEM, without a passphrase, that this user can read."
        raise ConfigError(config.path, [(0, "gateway.tls_cert", what, hint)]) from bad


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, so that asyncio turns Nagle off on what it accepts: head and body of
    # an answer are two writes, and the second would wait until the first was acknowledged.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
