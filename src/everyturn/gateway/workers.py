"""Where workers come in: pairing, the link's door, and what an operator changes while links live.

`POST /v1/workers/pair` gives a credential for a code; `GET /v1/workers/link` is the WebSocket that
a worker opens with it. Both are only there where a model is configured to run on a worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from everyturn.errors import AuditUnavailable, InvalidJson, Unauthorized
from everyturn.gateway.guard import check_content_type
from everyturn.gateway.http import Exchange, Receive, Send
from everyturn.gateway.link_pipe import AsgiPipe
from everyturn.gateway.log import Log
from everyturn.gateway.worker_registry import Paired, Registry
from everyturn.link.messages import MESSAGE_BYTES_MAX
from everyturn.transport.worker import WorkerLink, Workers
from everyturn.wire.reader import write

PAIR_BYTES_MAX: Final = 4096
LOOK_S: Final = 1.0
"""How often the registry is looked at for what an operator changed."""

ROTATION_S: Final = 10.0
"""How long a worker may take to store a new credential."""


class _Code(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a pairing request."""

    code: str


class WorkerDoor:
    """Lets workers in, and out again when they are revoked."""

    message_bytes_max: Final = MESSAGE_BYTES_MAX
    """What the server must take as one WebSocket message."""

    def __init__(self, workers: Workers, registry: Registry, log: Log) -> None:
        self.workers = workers
        self._registry = registry
        self._log = log
        self._watching: asyncio.Task[None] | None = None
        self._rotations: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin to look for changes of the registry."""
        self._registry.forget_connections()
        self._watching = asyncio.create_task(self._watch())

    def stop(self) -> None:
        """End every link in order. May be called twice."""
        self.workers.close("the gateway stops")
        if self._watching is not None:
            self._watching.cancel()
        for rotation in self._rotations.values():
            rotation.cancel()

    def gauges(self) -> dict[str, tuple[str, float]]:
        """What `/metrics` tells of workers."""
        return {"everyturn_workers_connected": ("Workers connected.", len(self.workers.names))}

    # ------------------------------------------------------------------------------------ pairing

    async def pair(self, exchange: Exchange) -> None:
        """Serve `POST /v1/workers/pair`; the code is what the caller must have."""
        check_content_type(exchange.header(b"content-type"))
        body = await exchange.body(PAIR_BYTES_MAX)
        try:
            given = msgspec.json.decode(body, type=_Code)
        except msgspec.DecodeError:
            raise InvalidJson("the body must be one object with the member `code`") from None
        name, credential = await asyncio.to_thread(
            self._registry.pair, given.code, int(time.time())
        )
        self._log("worker.paired", worker=name)
        link = self.workers.get(name)
        if link is not None:
            link.close("revoked", "the worker was paired anew")
        await exchange.answer(200, write({"name": name, "credential": credential}))

    # --------------------------------------------------------------------------------------- link

    async def admit(self, exchange: Exchange) -> str:
        """The name of the worker that wants to open a link. Raises Unauthorized."""
        scheme, _, credential = (exchange.header(b"authorization") or "").partition(" ")
        name = None
        if scheme.lower() == "bearer":
            now = int(time.time())
            name = await asyncio.to_thread(self._registry.whose, credential.strip(), now)
        if name is None:
            raise Unauthorized(
                "the worker's credential is missing or not valid",
                hint="Pair the worker: `everyturn worker invite NAME` here, then `worker pair`.",
            )
        return name

    async def serve(self, name: str, receive: Receive, send: Send) -> None:
        """Serve an accepted WebSocket until its link ends."""
        link = self.workers.attach(name, AsgiPipe(receive, send))
        self._log("worker.connected", worker=name)
        arriving = asyncio.create_task(self._arrived(name, link))
        try:
            ending = await link.run()
        except Exception as bug:  # noqa: BLE001 - a defect ends this link and no other
            self._log.bug("worker.link_failed", bug, worker=name)
        else:
            self._log("worker.gone", worker=name, reason=ending.reason)
        await arriving
        if self.workers.get(name) is None:
            await self._note(name, is_connected=False)

    async def _arrived(self, name: str, link: WorkerLink) -> None:
        await self._note(name, is_connected=True)
        worker = self._workers_of_file().get(name)
        if worker is not None and worker.wants_rotation:
            self._rotate(name, link)

    async def _note(self, name: str, *, is_connected: bool) -> None:
        now = int(time.time())
        try:
            await asyncio.to_thread(self._registry.note, name, is_connected=is_connected, now=now)
        except AuditUnavailable as failure:
            # Only `worker list` is the poorer for it.
            self._log("worker.not_noted", worker=name, reason=failure.message)

    # ------------------------------------------------------------------------ what operators change

    async def _watch(self) -> None:
        """Look once a second; a change takes effect on live links."""
        seen = self._registry.stamp()
        while True:
            await asyncio.sleep(LOOK_S)
            stamp = self._registry.stamp()
            if stamp == seen:
                continue
            seen = stamp
            try:
                self._apply(self._registry.read().workers)
            except AuditUnavailable as failure:
                self._log("worker.registry_unreadable", reason=failure.message)
            except Exception as bug:  # noqa: BLE001 - whatever it was, the next change must count
                self._log.bug("worker.registry_not_applied", bug)

    def _apply(self, found: Mapping[str, Paired]) -> None:
        for name in self.workers.names:
            link = self.workers.get(name)
            if link is None:
                continue
            worker = found.get(name)
            if worker is None:
                link.close("revoked", "the operator revoked this worker")
            elif worker.wants_rotation:
                self._rotate(name, link)

    def _workers_of_file(self) -> Mapping[str, Paired]:
        """Who is paired; nobody while the registry cannot be read, which the watch tells."""
        try:
            return self._registry.read().workers
        except AuditUnavailable:
            return {}

    def _rotate(self, name: str, link: WorkerLink) -> None:
        running = self._rotations.get(name)
        if running is None or running.done():
            self._rotations[name] = asyncio.create_task(self._rotation(name, link))

    async def _rotation(self, name: str, link: WorkerLink) -> None:
        """Send a new credential; the old one is void once the worker has stored the new one."""
        try:
            async with asyncio.timeout(ROTATION_S):
                await link.has_greeted.wait()
                credential = await asyncio.to_thread(self._registry.begin_rotation, name)
                if credential is None:
                    return
                link.rotate(credential)
                await link.has_rotated.wait()
            now = int(time.time())
            await asyncio.to_thread(self._registry.finish_rotation, name, now)
        except TimeoutError:
            self._log("worker.not_rotated", worker=name, reason="the worker did not confirm")
        except AuditUnavailable as failure:
            self._log("worker.not_rotated", worker=name, reason=failure.message)
        else:
            self._log("worker.rotated", worker=name)
