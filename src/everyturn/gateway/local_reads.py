"""Takes up what local commands noted of reasoning they read, as access events of its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from everyturn.errors import AuditUnavailable
from everyturn.gateway.log import Log
from everyturn.store.base import RecordRefused
from everyturn.store.local_reads import FOLDER, LocalRead, put_aside, waiting

LOOK_S: Final = 1.0
"""Between two looks for notes."""


class LocalReads:
    """Looks for notes from `start` to `stop`. For the gateway's event loop alone."""

    def __init__(self, data: Path, record: Callable[[LocalRead], Awaitable[None]], log: Log):
        """record: returns when the access event of a read is durable; raises AuditUnavailable."""
        self._data = data
        self._record = record
        self._log = log
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def start(self) -> None:
        """Begin with what was noted while no gateway ran."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """End; what waits is taken up at the next start."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                if (self._data / FOLDER).is_dir():
                    await self._take_up()
                self._has_failed = False
            except AuditUnavailable:
                pass  # The notes wait for the store, whose state `/readyz` tells.
            except OSError as failure:
                # Looked at again each second, told once.
                if not self._has_failed:
                    self._log("record.reads_unreadable", reason=failure.strerror or "unknown")
                self._has_failed = True
            await asyncio.sleep(LOOK_S)

    async def _take_up(self) -> None:
        for path, read in await asyncio.to_thread(waiting, self._data):
            is_recorded = False
            if read is not None:
                try:
                    await self._record(read)
                    is_recorded = True
                except RecordRefused:
                    is_recorded = False
            if is_recorded:
                path.unlink(missing_ok=True)
            else:
                put_aside(path)
                self._log("record.read_refused", reason=path.name)
