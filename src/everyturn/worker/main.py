"""The worker's process: dial, serve, and dial again, until it is told to stop or must not go on.

A broken link is dialled again after a delay that doubles up to a cap, with jitter. A credential
that is not valid any more, a gateway that speaks no common version, and another process with the
same credential end the worker: dialling on would help nobody.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from everyturn import __version__
from everyturn.transport.direct import DirectTransport
from everyturn.transport.link import Ending
from everyturn.worker import credential as credentials
from everyturn.worker.credential import Credential
from everyturn.worker.dial import Refused, Unreachable, WebSocketPipe, dial
from everyturn.worker.relay import CALLS_MAX, Relay

EXIT_STOPPED: Final = 0
EXIT_CREDENTIAL: Final = 3
"""The gateway does not take the credential: it was revoked, or never given."""
EXIT_VERSION: Final = 4
"""Gateway and worker speak no common version of the protocol."""
EXIT_REPLACED: Final = 5
"""Another process connected with the same credential."""

DELAY_S_MIN: Final = 0.5
DELAY_S_MAX: Final = 30.0
STEADY_S: Final = 10.0
"""After a link that lived so long the delay starts anew."""

Tell = Callable[..., None]


class Worker:
    """Keeps one link to the gateway of a paired worker."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, str],
        tell: Tell,
        *,
        grace_s: float,
        calls_max: int = CALLS_MAX,
    ) -> None:
        """Reads the credential. Raises InvalidValue when there is none that can be used.

        folder: of the credential. grace_s: how long calls under way may go on when asked to stop.
        """
        self._folder = folder
        self._targets = dict(targets)
        self._tell = tell
        self._grace_s = grace_s
        self._calls_max = calls_max
        self._credential: Credential = credentials.load(folder)
        self._stop = asyncio.Event()
        self._relay: Relay | None = None

    def stop(self) -> None:
        """Take nothing new, let calls end, and stop; asked twice, stop at once."""
        if self._stop.is_set() and self._relay is not None:
            self._relay.close("stopping", "the worker ends")
        self._stop.set()

    async def run(self) -> int:
        """Serve until stopped; returns the exit status."""
        transport = DirectTransport()
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while not self._stop.is_set():
                began = loop.time()
                status = await self._once(transport)
                if status is not None:
                    return status
                if loop.time() - began >= STEADY_S:
                    failures = 0
                wait_s = delay_s(failures, jitter=random.random())  # noqa: S311 - no secret
                failures += 1
                try:
                    async with asyncio.timeout(wait_s):
                        await self._stop.wait()
                except TimeoutError:
                    pass  # Time to dial again.
        finally:
            await transport.close()
        self._tell("worker.stopped")
        return EXIT_STOPPED

    async def _once(self, transport: DirectTransport) -> int | None:
        """One link, from dialling to its end; the exit status, or None to dial again."""
        try:
            pipe = await self._dialled()
        except Refused as refused:
            self._tell("worker.refused", reason=str(refused))
            return EXIT_CREDENTIAL
        except Unreachable as unreachable:
            self._tell("worker.unreachable", reason=str(unreachable))
            return None
        if pipe is None:
            return None  # Asked to stop while nobody answered.
        relay = self._relay = Relay(
            pipe,
            transport,
            self._targets,
            software=f"everyturn/{__version__}",
            tell=self._tell,
            store_credential=self._store,
            calls_max=self._calls_max,
        )
        draining = asyncio.create_task(self._drain_when_stopped(relay))
        try:
            ending = await relay.run()
        except OSError as bad:
            # The new credential could not be stored, so the gateway still takes the old one.
            self._tell("worker.credential_not_stored", reason=bad.strerror or type(bad).__name__)
            return None
        finally:
            self._relay = None
            draining.cancel()
        self._tell("worker.link_ended", reason=ending.reason)
        return _status(ending)

    async def _dialled(self) -> WebSocketPipe | None:
        """A pipe to the gateway; None if it was asked to stop meanwhile. Raises as `dial` does."""
        dialling = asyncio.create_task(dial(self._credential.gateway, self._credential.secret))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((dialling, stopping), return_when=asyncio.FIRST_COMPLETED)
            return await dialling if dialling.done() else None
        finally:
            dialling.cancel()
            stopping.cancel()

    async def _drain_when_stopped(self, relay: Relay) -> None:
        await self._stop.wait()
        await relay.drain(self._grace_s)

    def _store(self, secret: str) -> None:
        credential = msgspec.structs.replace(self._credential, secret=secret)
        credentials.store(self._folder, credential)
        self._credential = credential


def delay_s(failures: int, *, jitter: float) -> float:
    """Seconds to wait before dialling again. failures: links that broke in a row before this one.

    jitter: in [0, 1), from the caller.
    """
    longest = min(DELAY_S_MIN * 2.0 ** min(failures, 30), DELAY_S_MAX)
    return longest * (0.5 + jitter / 2)


def _status(ending: Ending) -> int | None:
    if ending.code == "revoked":
        return EXIT_CREDENTIAL
    if ending.code == "protocol_version_unsupported":
        return EXIT_VERSION
    if ending.code == "replaced":
        return EXIT_REPLACED
    return None


async def run(
    folder: Path, targets: Mapping[str, str], tell: Tell, *, grace_s: float, calls_max: int
) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit status. Raises InvalidValue."""
    worker = Worker(folder, targets, tell, grace_s=grace_s, calls_max=calls_max)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    return await worker.run()
