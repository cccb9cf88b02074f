"""A real worker, paired with a real gateway, in the test's own event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everyturn.gateway.worker_registry import Registry
from everyturn.mock.script import Script
from everyturn.mock.server import MockProvider
from everyturn.worker import credential
from everyturn.worker.main import Worker
from everyturn.worker.pair import pair
from tests.support.gateway import Running, running_gateway
from tests.support.scripted_upstream import until

TARGET = "server"
ANSWER = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'


@dataclass
class Beside:
    """A worker, and what it told."""

    worker: Worker
    run: asyncio.Task[int]
    folder: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    def has(self, event: str) -> bool:
        """Whether the worker told of this."""
        return any(line["event"] == event for line in self.lines)


def on_worker(name: str, **more: Any) -> dict[str, Any]:
    """A `[[models]]` entry that runs on the worker `box`."""
    entry = {"name": name, "preset": "generic-strict", "transport": "worker", "worker": "box"}
    return {**entry, "target": TARGET, **more}


async def paired(gateway: str, data: Path, folder: Path, name: str = "box") -> None:
    """Invite a worker at the gateway and pair it."""
    code = Registry(data).invite(name, int(time.time()))
    credential.check_folder(folder)
    credential.store(folder, await pair(gateway, code, {}))


@asynccontextmanager
async def a_worker(folder: Path, base_url: str, **more: Any) -> AsyncIterator[Beside]:
    """Run the worker whose credential is in `folder`, with one target, and stop it at the end."""
    lines: list[dict[str, Any]] = []

    def tell(event: str, **facts: Any) -> None:
        lines.append({"event": event, **facts})

    worker = Worker(folder, {TARGET: base_url}, tell, grace_s=5, **more)
    beside = Beside(worker, asyncio.create_task(worker.run()), folder, lines)
    try:
        yield beside
    finally:
        worker.stop()
        worker.stop()
        await beside.run


@asynccontextmanager
async def gateway_and_worker(
    tmp_path: Path, models: list[dict[str, Any]] | None = None, *, extra: str = ""
) -> AsyncIterator[tuple[Running, MockProvider, Beside]]:
    """A gateway, a worker that is connected to it, and the scripted provider beside the worker."""
    data = tmp_path / "data"
    async with (
        MockProvider() as mock,
        running_gateway(models or [on_worker("m")], data, extra=extra) as running,
    ):
        mock.add("m", Script.whole(body=ANSWER))
        gateway = f"ws://127.0.0.1:{running.gateway.port}"
        await paired(gateway, data, tmp_path / "worker")
        async with a_worker(tmp_path / "worker", mock.url) as beside:
            await until(lambda: beside.has("worker.connected"))
            yield running, mock, beside
